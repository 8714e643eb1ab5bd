"""Reads a shard file from the local disk, so that a bundle can be read without a store."""

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from cafcat.errors import Corrupt, NotFound, StoreFailed

__all__ = ["ShardFile"]


class ShardFile:
    """An open shard file on the local disk. A RandomReader and a context manager. Threads may share it.

    Attributes:
        name: path of the file.
        size_bytes: size of the file in bytes.
    """

    def __init__(self, path: Path) -> None:
        """Open a shard file for reading.

        Raises:
            NotFound: the file is missing.
            StoreFailed: the file cannot be opened.
        """
        self.name = str(path)
        try:
            self._file = path.open("rb", buffering=0)
        except FileNotFoundError as error:
            raise NotFound(f"the shard file {path.name} of the bundle is missing", chunk=self.name) from error
        except OSError as error:
            raise self._failed(error) from error
        self.size_bytes = os.fstat(self._file.fileno()).st_size

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes of `[start_byte, end_byte)`.

        Raises:
            Corrupt: the file ends before `end_byte`.
            StoreFailed: the file cannot be read.
        """
        try:
            data = os.pread(self._file.fileno(), end_byte - start_byte, start_byte)
        except OSError as error:
            raise self._failed(error) from error
        if len(data) != end_byte - start_byte:
            message = "the shard is damaged: it ends too early"
            raise Corrupt(message, chunk=self.name, byte=start_byte + len(data))
        return data

    def _failed(self, error: OSError) -> StoreFailed:
        return StoreFailed(f"the shard cannot be read: {error.strerror or error}", chunk=self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

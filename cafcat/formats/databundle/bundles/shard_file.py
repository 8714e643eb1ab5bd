"""A shard file on the disk, for who reads a bundle without any store."""

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from cafcat.errors import Corrupt, NotFound, StoreFailed

__all__ = ["ShardFile"]


class ShardFile:
    """A RandomReader and a context manager. Threads may share it."""

    def __init__(self, path: Path) -> None:
        """Raises NotFound, StoreFailed."""
        self.name = str(path)
        try:
            self._file = path.open("rb", buffering=0)
        except FileNotFoundError as error:
            raise NotFound(f"the bundle lacks its shard file {path.name}", chunk=self.name) from error
        except OSError as error:
            raise self._failed(error) from error
        self.size_bytes = os.fstat(self._file.fileno()).st_size

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """As RandomReader has it. Raises StoreFailed, too."""
        try:
            data = os.pread(self._file.fileno(), end_byte - start_byte, start_byte)
        except OSError as error:
            raise self._failed(error) from error
        if len(data) != end_byte - start_byte:
            message = "the shard is damaged: it ends before it should"
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

"""Reading exact byte ranges of local files."""

import errno
import os
import stat
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from cafcat.errors import CafcatError, Corrupt, InvalidInput, NotFound
from cafcat.stores.local_errors import store_failed

__all__ = ["BLOCK_BYTES", "LocalFile"]

BLOCK_BYTES = 1 << 20
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR)


class LocalFile:
    """A file of the local file system, open for reading, as a RandomReader for formats. Safe to share by
    threads."""

    def __init__(self, path: str) -> None:
        """Raises NotFound; InvalidInput if it is not a regular file; StoreFailed."""
        self.name = os.fspath(path)
        try:
            self._descriptor = os.open(self.name, _FLAGS)
        except OSError as error:
            raise self._unusable("open", error) from error
        except ValueError as error:
            raise InvalidInput(f"not a path: {self.name!r}") from error
        status = os.fstat(self._descriptor)
        self.size_bytes = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise InvalidInput(f"{self.name} is {what}")

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Exactly the bytes of `[start_byte, end_byte)`. Raises Corrupt if the file ends earlier: before
        memory is taken for what is not there."""
        self._check_span(start_byte, end_byte)
        parts = list(self._parts(start_byte, end_byte, end_byte - start_byte))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def blocks(self, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB."""
        self._check_span(start_byte, end_byte)
        return self._parts(start_byte, end_byte, BLOCK_BYTES)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _parts(self, start_byte: int, end_byte: int, block_bytes: int) -> Iterator[bytes]:
        """What each read gives; the kernel gives at most 2 GiB at once."""
        position = start_byte
        while position < end_byte:
            try:
                part = os.pread(self._descriptor, min(block_bytes, end_byte - position), position)
            except OSError as error:
                raise self._unusable("read", error) from error
            if not part:
                raise self._too_short(position, end_byte)
            position += len(part)
            yield part

    def _check_span(self, start_byte: int, end_byte: int) -> None:
        if not 0 <= start_byte <= end_byte:
            raise InvalidInput(f"bad byte range [{start_byte}, {end_byte}) of {self.name}")
        if end_byte > self.size_bytes:
            raise self._too_short(self.size_bytes, end_byte)

    def _too_short(self, found_bytes: int, end_byte: int) -> Corrupt:
        message = f"the object ends at byte {found_bytes:,}, expected at least {end_byte:,}"
        return Corrupt(message, chunk=self.name, byte=found_bytes)

    def _unusable(self, doing: str, error: OSError) -> CafcatError:
        if error.errno in _NOTHING_THERE:
            return NotFound(f"{self.name}: {error.strerror}")
        if error.errno in (errno.ENXIO, errno.ELOOP, errno.ENAMETOOLONG):
            return InvalidInput(f"{self.name}: {error.strerror}")
        return store_failed(doing, self.name, os.path.dirname(os.path.abspath(self.name)), error)

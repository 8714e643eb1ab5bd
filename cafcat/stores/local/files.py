"""Reads exact byte ranges of local files."""

import errno
import os
import stat
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from cafcat.errors import CafcatError, Corrupt, InvalidInput, NotFound
from cafcat.stores.local.errors import store_failed

__all__ = ["BLOCK_BYTES", "LocalFile"]

BLOCK_BYTES = 1 << 20
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR)


class LocalFile:
    """A local file that is open for reading, as a RandomReader for formats. Safe to share between threads.

    The file is closed by `close`, or when the last reference to this object is gone.
    """

    def __init__(self, path: str) -> None:
        """Open a file.

        Raises:
            NotFound: There is no such file.
            InvalidInput: This is not a regular file, or not a path.
            StoreFailed: The file cannot be opened.
        """
        self.name = os.fspath(path)
        self._descriptor = -1
        try:
            self._descriptor = os.open(self.name, _FLAGS)
        except OSError as error:
            raise self._unusable("open", error) from error
        except ValueError as error:
            raise InvalidInput(f"not a path: {self.name!r}") from error
        status = os.fstat(self._descriptor)
        self.size_bytes = status.st_size
        self._identity = (status.st_dev, status.st_ino, status.st_ctime_ns)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise InvalidInput(f"{self.name} is {what}")

    @property
    def descriptor(self) -> int:
        """File descriptor; -1 once the file is closed."""
        return self._descriptor

    def is_current(self) -> bool:
        """Return True if the file's name still leads to this file, and the file has not changed since opening.

        Every change of content, names, owner or permissions sets the status change time, which is compared.
        """
        try:
            found = os.stat(self.name)
        except OSError:
            return False
        return self._identity == (found.st_dev, found.st_ino, found.st_ctime_ns)

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes `[start_byte, end_byte)`.

        Raises:
            Corrupt: The file is shorter. No memory was allocated for the missing bytes.
            InvalidInput: The range is not valid.
            StoreFailed: The file cannot be read.
        """
        if not 0 <= start_byte <= end_byte <= self.size_bytes:
            self._check_span(start_byte, end_byte)
        data = self._part(start_byte, end_byte - start_byte)
        if len(data) == end_byte - start_byte:
            return data
        parts = [data, *self._parts(start_byte + len(data), end_byte, end_byte - start_byte)]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def blocks(self, start_byte: int, end_byte: int) -> Iterator[bytes]:
        """Yield the bytes `[start_byte, end_byte)` in blocks of at most 1 MiB. Raises as `read_at`."""
        self._check_span(start_byte, end_byte)
        return self._parts(start_byte, end_byte, BLOCK_BYTES)

    def close(self) -> None:
        """Close the file. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _parts(self, start_byte: int, end_byte: int, block_bytes: int) -> Iterator[bytes]:
        """Yield the results of the system calls. One call returns at most 2 GiB."""
        position = start_byte
        while position < end_byte:
            part = self._part(position, min(block_bytes, end_byte - position))
            if not part:
                raise self._too_short(position, end_byte)
            position += len(part)
            yield part

    def _part(self, start_byte: int, size_bytes: int) -> bytes:
        try:
            return os.pread(self._descriptor, size_bytes, start_byte)
        except OSError as error:
            raise self._unusable("read", error) from error

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

"""Reads exact byte ranges of local files, and keeps files open between reads.

Objects are immutable, but folders change: an object is pruned, restored from a backup, repaired, or damaged. So
CachedFiles checks the name of an open file before every read. It reads from the open file only if the name still
leads to this file, and the file has not changed since it was opened; else it opens the name again. A read therefore
has the same result as one that opens the file.
"""

import errno
import os
import stat
import time
from collections.abc import Iterator
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from cafcat.errors import CafcatError, Corrupt, InvalidInput, NotFound
from cafcat.stores.local.errors import store_failed
from cafcat.support.forking import renew_after_fork

if TYPE_CHECKING:
    from cafcat.stores.local.store import LocalStore

__all__ = ["BLOCK_BYTES", "CachedFiles", "LocalFile"]

BLOCK_BYTES: Final = 512 << 10
"""Size of the blocks of a stream. A block stays in the processor's cache until its checksum is computed and it is
written: blocks of 1 MiB take a quarter more time."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR)
_MOST_FILES: Final = 64
"""Most files that the cache of one store keeps open."""
_UNUSED_SECONDS: Final = 60.0
"""How long a file stays in the cache without being read, in seconds. Later reads of other files then close it.
While it is open, a deleted object takes disk space."""


class LocalFile:
    """A local file that is open for reading in parts: a RandomReader. Safe to share between threads.

    The file is closed by `close`, or when the last reference to this object is gone.
    """

    def __init__(self, path: str) -> None:
        """Open a file.

        Raises:
            NotFound: There is no such file.
            InvalidInput: This is not a regular file, or not a path. The path may be too long, or a loop of links.
            StoreFailed: The file cannot be opened for another reason.
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
            Corrupt: The file ends before end_byte. No memory was allocated for the missing bytes.
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
        """Yield the bytes `[start_byte, end_byte)` of the file in order, in blocks of at most 512 KiB.

        Raises:
            Corrupt: The file ends before end_byte.
            InvalidInput: The range is not valid.
            StoreFailed: The file cannot be read.
        """
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
        """Yield the bytes `[start_byte, end_byte)` in order, at most `block_bytes` at once.

        Each block is the result of one system call, which returns at most 2 GiB. Raises Corrupt if the file ends
        before end_byte.
        """
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
            reason = f"no object can have the byte range [{start_byte}, {end_byte})"
            raise InvalidInput(f"cannot read {self.name}: {reason}")
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


class _CachedFile:
    """An open file, and the time of its last read, in seconds of the monotonic clock."""

    __slots__ = ("_file", "used")

    def __init__(self, file: LocalFile) -> None:
        self._file = file
        self.used = time.monotonic()

    def read(self, start_byte: int, end_byte: int) -> bytes | None:
        """Return the bytes `[start_byte, end_byte)` of the file.

        Returns:
            The bytes; None if the file was replaced or changed since it was opened, or if reading fails for any
            reason.
        """
        file = self._file
        if not file.is_current() or end_byte > file.size_bytes:
            return None
        try:
            data = os.pread(file.descriptor, end_byte - start_byte, start_byte)
        except (OSError, ValueError, OverflowError):
            return None
        return data if len(data) == end_byte - start_byte else None


class CachedFiles:
    """Keeps up to 64 files open that a store has read last. Safe to share between threads.

    A file that is dropped from the cache is closed when the last thread has finished reading it.
    """

    def __init__(self, store: "LocalStore") -> None:
        """Begin with no open file.

        Args:
            store: The store. Its `open` opens the file of a key.
        """
        self._store = store
        self._files: dict[str, _CachedFile] = {}
        self._lock = Lock()
        self._cleaned_at = 0.0
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock in a forked process: another thread of the parent may have held it. Files stay open."""
        self._lock = Lock()

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        """Return the bytes `[start_byte, end_byte)` of an object, and keep its file open for later reads.

        Raises:
            NotFound: There is no such object.
            Corrupt: The object is shorter than end_byte.
            InvalidInput: The range or the key is not valid.
            StoreFailed: The file cannot be opened or read.
        """
        cached = self._files.get(key)
        if cached is not None and (data := cached.read(start_byte, end_byte)) is not None:
            cached.used = time.monotonic()
            if cached.used > self._cleaned_at + _UNUSED_SECONDS:
                self._drop_unused(cached.used)
            return data
        if cached is not None:
            self.drop(key)
        file = self._store.open(key)  # raises the error that the cached file hides
        data = file.read_at(start_byte, end_byte)
        self._cache(key, _CachedFile(file))
        return data

    def _cache(self, key: str, cached: _CachedFile) -> None:
        self._drop_unused(cached.used)
        with self._lock:
            while len(self._files) >= _MOST_FILES:
                del self._files[min(self._files, key=lambda name: self._files[name].used)]
            self._files[key] = cached

    def _drop_unused(self, now: float) -> None:
        self._cleaned_at = now
        with self._lock:
            for key in [key for key, cached in self._files.items() if cached.used + _UNUSED_SECONDS < now]:
                del self._files[key]

    def drop(self, key: str) -> None:
        """Stop keeping the file of an object open. A read in progress still ends normally."""
        with self._lock:
            self._files.pop(key, None)

    def close(self) -> None:
        """Drop all files. Idempotent. Later reads open files again."""
        with self._lock:
            self._files.clear()

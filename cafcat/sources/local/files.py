"""Reads one regular file of the local file system, and detects changes while it is read.

A small file takes few system calls, which are most of its cost: open, read, fstat, close if the file was read at
once (`FileOpener.read_each`), and open, fstat, read, fstat, close if it was opened first.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import chain, islice
from time import perf_counter
from types import TracebackType
from typing import Self

from cafcat.errors import SourceFailed
from cafcat.model import NewFile, ProblemKind, SourceFile
from cafcat.sources.base import open_or_error
from cafcat.sources.names import printable
from cafcat.support.beneath import Beneath
from cafcat.support.in_order import in_order

__all__ = [
    "AHEAD_FILES",
    "OPEN_FLAGS",
    "PROBED_FILES",
    "SMALL_BYTES",
    "FileOpener",
    "OpenLocalFile",
    "problem_kind",
    "reason",
]

_BLOCK_BYTES = 1 << 20
SMALL_BYTES = 128 << 10
"""Largest file that `FileOpener.read_each` reads with one call and then checks for changes, in bytes."""
PROBED_FILES = 32
"""How many files are read one after the other to measure how long a file takes."""
AHEAD_FILES = 1000
"""How many files are then read ahead before the time is measured again."""
_READERS = 12
"""Most threads that read ahead."""
_GROUP_FILES = 4
"""How many files a thread reads in a row. Handing a task to a thread costs as much as reading some small files."""
_SLOW_SECONDS = 45e-6
"""Average time for a file, in seconds, above which files are read ahead. Reading a small file from memory takes a
tenth of that, reading it from a fast disk twice as much."""

OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Flags for os.open. With O_NONBLOCK, opening a FIFO that replaced a file does not wait for a writer."""

_KINDS = {
    errno.ENOENT: ProblemKind.VANISHED,
    errno.ENOTDIR: ProblemKind.VANISHED,
    errno.ESTALE: ProblemKind.VANISHED,
    errno.ENAMETOOLONG: ProblemKind.NAME,
    errno.ELOOP: ProblemKind.LOOP,
    errno.ENXIO: ProblemKind.CHANGED,  # opening a socket
}


def problem_kind(error: OSError) -> ProblemKind:
    """Return the kind of problem under which a file is reported that had an error of the operating system."""
    return _KINDS.get(error.errno or 0, ProblemKind.UNREADABLE)


def reason(error: OSError) -> str:
    """Return the text of an operating system's error, such as "No such file or directory", without the path."""
    return error.strerror or str(error)


class FileOpener:
    """Opens files by their paths. It can be pickled."""

    def __init__(self, *, follow_symlinks: bool, typed: str | None = None) -> None:
        """Store how files are opened.

        Args:
            follow_symlinks: True to open the targets of symbolic links.
            typed: Path of the source as typed. If it is a symbolic link, it is followed in any case. None: the
                source has no typed path.
        """
        self._typed = typed
        self._flags = OPEN_FLAGS if follow_symlinks else OPEN_FLAGS | os.O_NOFOLLOW
        self._beneath = None if follow_symlinks or typed is None else Beneath(os.path.join(typed, ""))

    def open(self, file: SourceFile) -> "OpenLocalFile":
        """Open a file that a source found.

        Raises:
            SourceFailed: The file has vanished, cannot be opened, or is not a regular file any more.
        """
        return OpenLocalFile(file, self._descriptor)

    def _descriptor(self, file: SourceFile) -> int:
        """Open a file, and return its descriptor. Raises OSError."""
        if file.locator == self._typed:
            return os.open(file.locator, OPEN_FLAGS)
        if self._beneath is None:
            return os.open(file.locator, self._flags)
        return self._beneath.open(file.locator, self._flags)

    def read_each(self, files: Iterable[SourceFile]) -> "Iterator[NewFile | OpenLocalFile | SourceFailed]":
        """Yield a NewFile, an opened file, or the SourceFailed of opening it, for each file, in order.

        A small file that has not changed since it was listed becomes a NewFile, with four system calls: open, read,
        fstat, close. The time is measured with 32 files that are read one after the other. If they take long,
        because of a disk or a server, several threads read the next 1,000 files. Then the time is measured again.
        """
        files = iter(files)
        while some := list(islice(files, PROBED_FILES)):
            seconds = 0.0
            for file in some:
                begun = perf_counter()
                small = self._read_small(file)
                result = open_or_error(self, small) if isinstance(small, SourceFile) else small
                seconds += perf_counter() - begun
                yield result
            if len(some) == PROBED_FILES and seconds > _SLOW_SECONDS * len(some):
                yield from self._read_ahead(islice(files, AHEAD_FILES))

    def _read_ahead(self, files: Iterator[SourceFile]) -> "Iterator[NewFile | OpenLocalFile | SourceFailed]":
        """Yield results as `read_each`. Threads read the small files; others are opened when they are yielded."""
        groups = iter(lambda: list(islice(files, _GROUP_FILES)), [])
        with closing(in_order(self._read_group, groups, most_in_flight=_READERS)) as results:
            for result in chain.from_iterable(results):
                yield open_or_error(self, result) if isinstance(result, SourceFile) else result

    def _read_group(self, files: Iterable[SourceFile]) -> list[NewFile | SourceFile]:
        return [self._read_small(file) for file in files]

    def _read_small(self, file: SourceFile) -> NewFile | SourceFile:
        """Read a small file, and return its content if the file has not changed since it was listed.

        Return the file itself in all other cases. The caller then opens it, which raises the error if there is one.
        """
        if file.size_bytes > SMALL_BYTES:
            return file
        try:
            descriptor = self._descriptor(file)
        except OSError:
            return file
        try:
            content = os.read(descriptor, file.size_bytes + 1)
            status = os.fstat(descriptor)
        except OSError:
            return file
        finally:
            os.close(descriptor)
        is_same = (
            len(content) == file.size_bytes
            and status.st_size == file.size_bytes
            and status.st_mtime_ns == file.modified_ns
            and status.st_ctime_ns == file.changed_ns
            and stat.S_ISREG(status.st_mode)
        )
        return NewFile(file.path, content, file.modified_ns) if is_same else file


class OpenLocalFile:
    """A regular file that is open for one reading: either read() or blocks(), once.

    Changes while it is open are detected by size, modification time and status change time. Before Linux 6.13,
    these times are as coarse as the kernel's tick (1-10 ms): two changes to the same size within one tick look like
    one.
    """

    __slots__ = ("_descriptor", "_path", "_status", "etag", "modified_ns", "size_bytes")

    def __init__(self, file: SourceFile, open_file: Callable[[SourceFile], int]) -> None:
        """Open a regular file of the local file system.

        Args:
            file: The file as it was found.
            open_file: Opens the file, and returns its descriptor.

        Raises:
            SourceFailed: The file cannot be opened, or is not a regular file any more.
        """
        self._path = file.path
        try:
            self._descriptor = open_file(file)
        except OSError as error:
            raise self._open_failed(error, file) from error
        try:
            self._status = status = self._stat()
            if not stat.S_ISREG(status.st_mode):
                raise self._failed(ProblemKind.CHANGED, "is no longer a regular file")
        except BaseException:
            os.close(self._descriptor)
            raise
        self.size_bytes: int = status.st_size
        self.modified_ns: int = status.st_mtime_ns
        self.etag: str | None = None  # file systems have no entity tags

    def read(self) -> bytes:
        """Return all bytes of the file.

        Raises:
            SourceFailed: The file has changed since it was opened, or cannot be read.
        """
        wanted = self.size_bytes + 1  # one byte more detects growth, and ends the file with one call
        data = self._read(wanted)
        if len(data) != self.size_bytes:
            data = self._read_on(data, wanted)
        self._check_unchanged()
        return data

    def blocks(self) -> Iterator[bytes]:
        """Yield all bytes of the file in blocks of at most 1 MiB.

        Raises:
            SourceFailed: The file has changed since it was opened, or cannot be read.
        """
        remaining = self.size_bytes
        while remaining:
            block = self._read(min(remaining, _BLOCK_BYTES))
            if not block:
                raise self._changed(self.size_bytes - remaining)
            remaining -= len(block)
            yield block
        if self._read(1):
            raise self._changed(self.size_bytes + 1)
        self._check_unchanged()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def _stat(self) -> os.stat_result:
        try:
            return os.fstat(self._descriptor)
        except OSError as error:  # on a network file system
            raise self._failed(problem_kind(error), f"cannot be looked at: {reason(error)}") from error

    def _read(self, size_bytes: int) -> bytes:
        try:
            return os.read(self._descriptor, size_bytes)
        except OSError as error:
            raise self._failed(ProblemKind.UNREADABLE, f"cannot be read: {reason(error)}") from error

    def _read_on(self, start: bytes, wanted: int) -> bytes:
        """Return all bytes of the file, after a first read returned more or fewer bytes than the file's size.

        The Linux kernel returns at most 2 GiB at once, other systems less.

        Args:
            start: The bytes that the first read returned.
            wanted: Number of bytes to read: one more than the size, to detect growth.

        Raises:
            SourceFailed: The file has another size than when it was opened.
        """
        parts = [start]
        count = len(start)
        while count < wanted and (block := self._read(wanted - count)):
            parts.append(block)
            count += len(block)
        if count != self.size_bytes:
            raise self._changed(count)
        return b"".join(parts)

    def _check_unchanged(self) -> None:
        before = self._status
        now = self._stat()
        if (
            now.st_ctime_ns == before.st_ctime_ns
            and now.st_mtime_ns == before.st_mtime_ns
            and now.st_size == before.st_size
        ):
            return
        if now.st_nlink == 0:
            raise self._failed(ProblemKind.VANISHED, "was removed or replaced while it was read")
        raise self._changed(now.st_size)

    def _changed(self, found_bytes: int) -> SourceFailed:
        sizes = f"{self.size_bytes:,} bytes when opened"
        if found_bytes != self.size_bytes:
            sizes += f", {'more' if found_bytes > self.size_bytes else f'{found_bytes:,}'} when read"
        return self._failed(ProblemKind.CHANGED, f"changed while it was read ({sizes})")

    def _open_failed(self, error: OSError, file: SourceFile) -> SourceFailed:
        if error.errno == errno.ELOOP and os.path.islink(file.locator):
            return self._failed(ProblemKind.CHANGED, "is now a symbolic link")
        if error.errno == errno.ELOOP and os.path.exists(file.locator):
            return self._failed(ProblemKind.CHANGED, "is now behind a symbolic link")
        return self._failed(problem_kind(error), f"cannot be opened: {reason(error)}")

    def _failed(self, kind: ProblemKind, message: str) -> SourceFailed:
        return SourceFailed(message, path=printable(self._path), problem=kind.value)

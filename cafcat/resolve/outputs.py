"""Files that appear whole or not at all, and never outside the folder that they were meant for."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from cafcat.errors import CafcatError, Conflict, InvalidInput, OutputFailed

__all__ = [
    "OutputTree",
    "check_free",
    "disk_errors",
    "is_special",
    "placed",
    "safe_parts",
    "write_all",
    "write_file",
    "write_single",
]

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_UNNAMED_FLAGS = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_TMPFILE", os.O_DIRECTORY)
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
"""What systems and file systems say that do not know O_TMPFILE. A folder that was removed says ENOENT, too: then a
name in it says so once more."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def safe_parts(path: str) -> tuple[str, ...]:
    """A catalog path as names of folders and file. Raises InvalidInput for what could leave the folder that it
    is extracted to, or means nothing on disk: "..", absolute names, empty parts, NUL, drive letters."""
    parts = tuple(path.split("/"))
    drive = os.path.splitdrive(path)[0]
    if drive or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise InvalidInput("the name cannot be a file below a folder", path=path)
    return parts


def write_file(
    folder: int, name: str, blocks: Iterable[bytes], modified_ns: int | None, *, overwrite: bool, shown: str
) -> None:
    """Writes a file in an open folder: under a temporary name, which becomes the real one at the end. `shown` is
    what messages call it.

    Raises Conflict if it is there already and `overwrite` is false, InvalidInput if the file system cannot have
    such a name, OutputFailed if it cannot be written; then, as after any error of `blocks`, nothing is left
    behind.
    """
    try:
        file, temporary = _open_new(folder)
        try:
            try:
                _fill(file, blocks, modified_ns)
                if temporary is None:
                    temporary = _name(file, folder, name, overwrite=overwrite)
            finally:
                os.close(file)
            if temporary is not None:
                _take_name(folder, temporary, name, overwrite=overwrite)
        except BaseException:
            if temporary is not None:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
            raise
    except OSError as error:
        raise _disk_error(error, shown) from error


def _open_new(folder: int) -> tuple[int, str | None]:
    """A new file in a folder: one without a name where the file system has that, else one with a temporary name.
    What has no name is gone when its process is."""
    try:
        return os.open(".", _UNNAMED_FLAGS, 0o666, dir_fd=folder), None
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            raise
    return _open_temporary(folder)


def _open_temporary(folder: int) -> tuple[int, str]:
    temporary = _temporary_name()
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder), temporary


def _temporary_name() -> str:
    return f".cafcat-{os.urandom(8).hex()}.partial"


def _fill(file: int, blocks: Iterable[bytes], modified_ns: int | None) -> None:
    for block in blocks:
        write_all(file, block)
    if modified_ns is not None:
        os.utime(file, ns=(modified_ns, modified_ns))


def _name(file: int, folder: int, name: str, *, overwrite: bool) -> str | None:
    """Gives an open file that has none its name; or, where that takes a further step, a temporary one, and returns
    that."""
    own = f"/proc/self/fd/{file}"
    try:
        os.link(own, name, dst_dir_fd=folder, follow_symlinks=True)
    except FileExistsError:
        if not overwrite:
            raise
        temporary = _temporary_name()
        os.link(own, temporary, dst_dir_fd=folder, follow_symlinks=True)
        return temporary
    except OSError as error:
        if error.errno not in (*_NO_LINKS, errno.ENOENT, errno.EXDEV):
            raise
        return _copied(file, folder)
    return None


def _copied(file: int, folder: int) -> str:
    """The content of a file that cannot be linked, as one with a temporary name."""
    copy, temporary = _open_temporary(folder)
    try:
        with _removed_after_error(temporary, folder):
            position = 0
            while block := os.pread(file, 1 << 20, position):
                write_all(copy, block)
                position += len(block)
            os.utime(copy, ns=(0, os.fstat(file).st_mtime_ns))
    finally:
        os.close(copy)
    return temporary


@contextmanager
def _removed_after_error(temporary: str, folder: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def check_free(output: Path, *, overwrite: bool) -> None:
    """Raises Conflict for what write_single would refuse to write to before it reads a byte."""
    with disk_errors(str(output)):
        if output.is_dir():
            raise Conflict("there is a folder of that name", path=str(output))
        if not overwrite and os.path.lexists(output) and not is_special(output):
            raise FileExistsError


def write_single(output: Path, blocks: Iterable[bytes], modified_ns: int | None, *, overwrite: bool) -> None:
    """write_file for a path of the user's. What is there and is a device, a pipe or a socket is written to. Raises
    Conflict before a byte is read if there is a file or folder already."""
    check_free(output, overwrite=overwrite)
    with disk_errors(str(output)):
        if is_special(output):
            with output.open("wb", buffering=0) as file:
                for block in blocks:
                    write_all(file.fileno(), block)
            return
        folder = os.open(output.parent, _FOLDER_FLAGS)
    try:
        write_file(folder, output.name, blocks, modified_ns, overwrite=overwrite, shown=str(output))
    finally:
        os.close(folder)


@contextmanager
def placed(output: Path, *, overwrite: bool) -> Iterator[str]:
    """The path of a file beside `output`, for somebody else to write. When this is left, that file is durable and
    has its name; after an error nothing is left of it. Raises Conflict before that as `write_single` does,
    InvalidInput for a device or pipe, OutputFailed."""
    check_free(output, overwrite=overwrite)
    if is_special(output):
        raise InvalidInput("this needs a file, not a device or pipe", path=str(output))
    temporary = _temporary_name()
    with disk_errors(str(output)):
        folder = os.open(output.parent, _FOLDER_FLAGS)
    try:
        with _removed_after_error(temporary, folder):
            yield f"{os.path.abspath(output.parent)}/{temporary}"
            with disk_errors(str(output)):
                _sync(temporary, folder)
                _take_name(folder, temporary, output.name, overwrite=overwrite)
                os.fsync(folder)
    finally:
        os.close(folder)


def _sync(name: str, folder: int) -> None:
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def is_special(output: Path) -> bool:
    """Whether it is written to, and not replaced: a device, a pipe, a socket."""
    return output.is_char_device() or output.is_fifo() or output.is_socket()


def write_all(file: int, block: bytes) -> None:
    """All of a block to an open file. Raises OSError."""
    written = os.write(file, block)
    while written < len(block):
        written += os.write(file, memoryview(block)[written:])


def _take_name(folder: int, temporary: str, name: str, *, overwrite: bool) -> None:
    if overwrite:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # No hard links here: claim the name, then rename over our own claim.
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, dir_fd=folder))
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    os.unlink(temporary, dir_fd=folder)


_NO_SUCH_NAME = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)
_IN_THE_WAY = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY)


@contextmanager
def disk_errors(shown: str) -> Iterator[None]:
    """What the operating system says, in cafcat's words; `shown` is the file or folder that it says it of."""
    try:
        yield
    except OSError as error:
        raise _disk_error(error, shown) from error


def _disk_error(error: OSError, shown: str) -> CafcatError:
    reason = error.strerror or str(error)
    if error.errno == errno.EEXIST or isinstance(error, FileExistsError):
        return Conflict("there is a file of that name already", path=shown, hint="--force overwrites it")
    if error.errno in _IN_THE_WAY:
        return Conflict("a file or link is in the way of a folder", path=shown)
    if error.errno in _NO_SUCH_NAME:
        return InvalidInput(f"the file system cannot have this name: {reason}", path=shown)
    return OutputFailed(f"cannot be written: {reason}", path=shown)


class OutputTree:
    """A folder to extract to, made if it is not there. Only folders that are really folders are entered: a
    symbolic link below it, whoever put it there, is in the way and not a way out."""

    def __init__(self, directory: Path) -> None:
        """Raises OutputFailed or Conflict if the folder cannot be made or opened."""
        self._shown = directory
        with disk_errors(str(directory)):
            directory.mkdir(parents=True, exist_ok=True)
            self._root = os.open(directory, _FOLDER_FLAGS)
        self._prefix = str(directory / "x")[:-1]
        self._open: list[tuple[str, int]] = []
        self._last: str | None = None
        """Beginning of the path that was written last, with the slash; that folder is _last_folder."""
        self._last_folder = self._root

    def write(self, path: str, blocks: Iterable[bytes], modified_ns: int | None, *, overwrite: bool) -> None:
        """Writes a file at a catalog path below the folder. Raises InvalidInput, Conflict, OutputFailed, and
        whatever `blocks` raises."""
        name = path.rsplit("/", 1)[-1]
        # What follows each other is mostly in one folder, and looked at just now.
        if path[: -len(name)] != self._last or name in ("", ".", "..") or "\0" in name:
            *folders, name = safe_parts(path)
            self._last_folder = self._folder(folders)
            self._last = path[: -len(name)]
        shown = f"{self._prefix}{path}"
        write_file(self._last_folder, name, blocks, modified_ns, overwrite=overwrite, shown=shown)

    def make_folder(self, path: str) -> None:
        """Makes a folder of the tree, if it is not there. Raises InvalidInput, Conflict, OutputFailed."""
        self._folder(list(safe_parts(path)))

    def _folder(self, names: list[str]) -> int:
        """Folders of the last path stay open, so that neighbours find theirs at once."""
        self._last = None
        common = 0
        while common < min(len(names), len(self._open)) and self._open[common][0] == names[common]:
            common += 1
        self._close_from(common)
        for depth in range(common, len(names)):
            self._open.append((names[depth], self._enter(names[depth], names[: depth + 1])))
        return self._open[-1][1] if self._open else self._root

    def _enter(self, name: str, path: list[str]) -> int:
        parent = self._open[-1][1] if self._open else self._root
        with disk_errors(str(self._shown.joinpath(*path))):
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
            return os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent)

    def _close_from(self, depth: int) -> None:
        while len(self._open) > depth:
            os.close(self._open.pop()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_from(0)
        os.close(self._root)

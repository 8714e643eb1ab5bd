"""Files that appear whole or not at all, and never outside the folder that they were meant for."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from cafcat.errors import Conflict, InvalidInput, OutputFailed

__all__ = ["OutputTree", "check_free", "is_special", "safe_parts", "write_file", "write_single"]

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


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
    temporary = f".cafcat-{os.urandom(8).hex()}.partial"
    with _disk_errors(shown):
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            try:
                for block in blocks:
                    _write_all(file, block)
                if modified_ns is not None:
                    os.utime(file, ns=(modified_ns, modified_ns))
            finally:
                os.close(file)
            _take_name(folder, temporary, name, overwrite=overwrite)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def check_free(output: Path, *, overwrite: bool) -> None:
    """Raises Conflict for what write_single would refuse to write to before it reads a byte."""
    with _disk_errors(str(output)):
        if output.is_dir() or (not overwrite and os.path.lexists(output) and not is_special(output)):
            raise FileExistsError


def write_single(output: Path, blocks: Iterable[bytes], modified_ns: int | None, *, overwrite: bool) -> None:
    """write_file for a path of the user's. What is there and is a device, a pipe or a socket is written to. Raises
    Conflict before a byte is read if there is a file or folder already."""
    check_free(output, overwrite=overwrite)
    with _disk_errors(str(output)):
        if is_special(output):
            with output.open("wb", buffering=0) as file:
                for block in blocks:
                    _write_all(file.fileno(), block)
            return
        folder = os.open(output.parent, _FOLDER_FLAGS)
    try:
        write_file(folder, output.name, blocks, modified_ns, overwrite=overwrite, shown=str(output))
    finally:
        os.close(folder)


def is_special(output: Path) -> bool:
    """Whether it is written to, and not replaced: a device, a pipe, a socket."""
    return output.is_char_device() or output.is_fifo() or output.is_socket()


def _write_all(file: int, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(file, rest) :]


def _take_name(folder: int, temporary: str, name: str, *, overwrite: bool) -> None:
    if overwrite:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # No hard links here: claim the name, then rename over our own claim.
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, dir_fd=folder))
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    os.unlink(temporary, dir_fd=folder)


_NO_SUCH_NAME = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)
_IN_THE_WAY = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY)


@contextmanager
def _disk_errors(shown: str) -> Iterator[None]:
    """What the operating system says, in cafcat's words; `shown` is the file or folder that it says it of."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EEXIST or isinstance(error, FileExistsError):
            raise Conflict("there is a file or folder of that name already", path=shown) from error
        if error.errno in _IN_THE_WAY:
            raise Conflict("a file or link is in the way of a folder", path=shown) from error
        if error.errno in _NO_SUCH_NAME:
            raise InvalidInput(f"the file system cannot have this name: {reason}", path=shown) from error
        raise OutputFailed(f"cannot be written: {reason}", path=shown) from error


class OutputTree:
    """A folder to extract to, made if it is not there. Only folders that are really folders are entered: a
    symbolic link below it, whoever put it there, is in the way and not a way out."""

    def __init__(self, directory: Path) -> None:
        """Raises OutputFailed or Conflict if the folder cannot be made or opened."""
        self._shown = directory
        with _disk_errors(str(directory)):
            directory.mkdir(parents=True, exist_ok=True)
            self._root = os.open(directory, _FOLDER_FLAGS)
        self._open: list[tuple[str, int]] = []

    def write(self, path: str, blocks: Iterable[bytes], modified_ns: int | None, *, overwrite: bool) -> None:
        """Writes a file at a catalog path below the folder. Raises InvalidInput, Conflict, OutputFailed, and
        whatever `blocks` raises."""
        *folders, name = safe_parts(path)
        folder, shown = self._folder(folders), str(self._shown / path)
        write_file(folder, name, blocks, modified_ns, overwrite=overwrite, shown=shown)

    def make_folder(self, path: str) -> None:
        """Makes a folder of the tree, if it is not there. Raises InvalidInput, Conflict, OutputFailed."""
        self._folder(list(safe_parts(path)))

    def _folder(self, names: list[str]) -> int:
        """Folders of the last path stay open, so that neighbours find theirs at once."""
        common = 0
        while common < min(len(names), len(self._open)) and self._open[common][0] == names[common]:
            common += 1
        self._close_from(common)
        for depth in range(common, len(names)):
            self._open.append((names[depth], self._enter(names[depth], names[: depth + 1])))
        return self._open[-1][1] if self._open else self._root

    def _enter(self, name: str, path: list[str]) -> int:
        parent = self._open[-1][1] if self._open else self._root
        with _disk_errors(str(self._shown.joinpath(*path))):
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

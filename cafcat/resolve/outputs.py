"""Files that appear whole or not at all, and never outside the folder that they were meant for."""

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from cafcat.errors import Conflict, InvalidInput, StoreFailed

__all__ = ["OutputTree", "safe_parts", "write_file", "write_single"]

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
    folder: int, name: str, blocks: Iterable[bytes], modified_ns: int | None, *, overwrite: bool
) -> None:
    """Writes a file in an open folder: under a temporary name, which becomes the real one at the end.

    Raises Conflict if it is there already and `overwrite` is false, StoreFailed if it cannot be written; then,
    as after any error of `blocks`, nothing is left behind.
    """
    temporary = f".cafcat-{secrets.token_hex(8)}.partial"
    with _disk_errors(name):
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


def write_single(output: Path, blocks: Iterable[bytes], modified_ns: int | None, *, overwrite: bool) -> None:
    """write_file for a path of the user's. Raises Conflict before a byte is read if it is there already."""
    if not overwrite and os.path.lexists(output):
        raise Conflict("there is a file of that name already", path=str(output), hint="use --force")
    with _disk_errors(str(output)):
        folder = os.open(output.parent, _FOLDER_FLAGS)
    try:
        write_file(folder, output.name, blocks, modified_ns, overwrite=overwrite)
    finally:
        os.close(folder)


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


@contextmanager
def _disk_errors(name: str) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise Conflict("there is a file of that name already", path=name, hint="use --force") from error
    except (IsADirectoryError, NotADirectoryError) as error:
        raise Conflict("a folder and a file want the same name", path=name) from error
    except OSError as error:
        raise StoreFailed(f"cannot be written: {error.strerror or error}", path=name) from error


class OutputTree:
    """A folder to extract to, made if it is not there. Only folders that are really folders are entered: a
    symbolic link below it, whoever put it there, is in the way and not a way out."""

    def __init__(self, directory: Path) -> None:
        """Raises StoreFailed if the folder cannot be made or opened."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._root = os.open(directory, _FOLDER_FLAGS)
        except OSError as error:
            raise StoreFailed(f"the folder {directory} cannot be used: {error.strerror or error}") from error
        self._open: list[tuple[str, int]] = []

    def write(self, path: str, blocks: Iterable[bytes], modified_ns: int | None, *, overwrite: bool) -> None:
        """Writes a file at a catalog path below the folder. Raises InvalidInput, Conflict, StoreFailed, and
        whatever `blocks` raises."""
        *folders, name = safe_parts(path)
        write_file(self._folder(folders, path), name, blocks, modified_ns, overwrite=overwrite)

    def _folder(self, names: list[str], path: str) -> int:
        """Folders of the last path stay open, so that neighbours find theirs at once."""
        common = 0
        while common < min(len(names), len(self._open)) and self._open[common][0] == names[common]:
            common += 1
        self._close_from(common)
        for name in names[common:]:
            self._open.append((name, self._enter(name, path)))
        return self._open[-1][1] if self._open else self._root

    def _enter(self, name: str, path: str) -> int:
        parent = self._open[-1][1] if self._open else self._root
        with suppress(FileExistsError), _disk_errors_of_folder(path):
            os.mkdir(name, dir_fd=parent)
        with _disk_errors_of_folder(path):
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


@contextmanager
def _disk_errors_of_folder(path: str) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise Conflict("something that is no folder is in the way", path=path) from error
        raise StoreFailed(f"a folder cannot be made: {error.strerror or error}", path=path) from error

"""Writes a tree of files below one folder. Each appears with all of its content, and none outside the folder."""

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from cafcat.errors import CafcatError, Conflict, InvalidInput, shown_path
from cafcat.reading.durable_files import DurableFiles, OpenFolder
from cafcat.reading.output_errors import disk_errors
from cafcat.reading.outputs import Output
from cafcat.support.checksums import crc32c
from cafcat.support.syncing import sync_ancestors

if TYPE_CHECKING:
    from cafcat.native.extract import SmallFiles

__all__ = ["OutputTree", "is_safe_name", "safe_parts"]

_BLOCK_BYTES: Final = 1 << 20

Of = TypeVar("Of")


def is_safe_name(name: str) -> bool:
    """Return True if a file in a folder can have this name, which has no slash: it is not "", "." or ".."."""
    return name not in ("", ".", "..") and "\0" not in name


def safe_parts(path: str) -> tuple[str, ...]:
    """Split a path of the catalog into the names of its folders and of its file.

    Raises:
        InvalidInput: The path could lead out of the folder that it is extracted to, or no file can have it: it is
            absolute, or has a part "..", "." or "", a NUL or a drive letter.
    """
    parts = tuple(path.split("/"))
    drive = os.path.splitdrive(path)[0]
    if drive or not all(map(is_safe_name, parts)):
        message = 'no file can be extracted to this path: it is absolute, or has a part "..", "." or "", or a NUL'
        raise InvalidInput(message, path=path)
    return parts


class OutputTree(Generic[Of]):
    """Writes files below an output folder, which is created if it is missing.

    Use it in a `with` statement: files that have no name yet when it is left are dropped. Symbolic links below the
    folder are not followed: a link in the place of a folder is a Conflict. After `commit`, all written files are
    durable and have their names, except for those that `finished` returns with an error.
    """

    def __init__(self, output: Output) -> None:
        """Create the output folder, unless it exists, and open it.

        Args:
            output: Path of the folder, whether to replace existing files in it, and permissions of new files.

        Raises:
            Conflict: A file, or a link to nothing, is in the way.
            InvalidInput: The file system cannot have such a name.
            OutputFailed: The folder cannot be created or opened.
        """
        self._output = output
        directory = output.path
        with disk_errors(output.shown):
            if os.path.lexists(directory) and not directory.is_dir():
                raise Conflict("this is no folder, and the output needs one", path=output.shown)
            directory.mkdir(parents=True, exist_ok=True, mode=output.folder_mode)
            self._root = OpenFolder.at(directory)
        self._prefix = str(directory / "x")[:-1]
        self._files: DurableFiles[Of] = DurableFiles(output.shown, overwrite=output.overwrite, mode=output.mode)
        self._open: list[tuple[str, OpenFolder]] = []
        self._last: str | None = None
        """The path that was written last, up to the slash before the file's name; that folder is _last_folder."""
        self._last_folder = self._root
        self._checks_first = False
        """True after the first Conflict. Then each name is checked before its content is written."""

    def write(self, path: str, blocks: Iterable[bytes], modified_ns: int | None, of: Of) -> None:
        """Write a file below the output folder. The file gets its name later, at the latest in `commit`.

        Args:
            path: Path of the file in the catalog.
            blocks: Content of the file. Errors of the iteration are raised.
            modified_ns: Modification time of the file, in nanoseconds since 1970; None for the current time.
            of: What `finished` returns for this file.

        Raises:
            InvalidInput: The path cannot be the name of a file below the folder.
            Conflict: A file or link is in the way of a folder, or a file exists. An existing file may be found only
                later, and is then an error in `finished`.
            OutputFailed: The disk is full or fails.
        """
        name = path.rsplit("/", 1)[-1]
        # Files that follow each other are mostly in one folder, whose name was checked just now.
        if path[: -len(name)] != self._last or not is_safe_name(name):
            *folders, name = safe_parts(path)
            self._last_folder = self._folder(folders)
            self._last = path[: -len(name)]
        shown = f"{self._prefix}{path}"
        if self._checks_first:
            self._check_free(name, shown)
        self._files.write(self._last_folder, name, blocks, modified_ns, shown=shown, of=of)

    def write_together(self, folder: str, files: "SmallFiles", ofs: Sequence[Of]) -> int:
        """Write small files of one folder with the native part. They get their names in `commit` at the latest.

        Args:
            folder: Path of the folder in the catalog, with a slash at its end; "" for the output folder.
            files: The files. `is_safe_name` is true for each of their names.
            ofs: What `finished` returns for each file.

        Returns:
            The number of files that were written, which are the first ones. `write` raises the error of the next
            one, or writes it.

        Raises:
            InvalidInput: The path cannot be that of a folder below the output folder.
            Conflict: A file or link is in the way of a folder.
            OutputFailed: The folder cannot be created, or an earlier file could not be made durable.
        """
        if folder != self._last:
            self._last_folder = self._folder(list(safe_parts(folder[:-1])) if folder else [])
            self._last = folder
        return self._files.write_together(self._last_folder, files, ofs, shown=f"{self._prefix}{folder}")

    @property
    def writes_together(self) -> bool:
        """True if `write_together` may write files."""
        return self._files.writes_together and not self._checks_first

    def _check_free(self, name: str, shown: str) -> None:
        """Raise Conflict if the folder of the new file already has a file, folder or link with this name.

        Args:
            name: Name of the new file in its folder.
            shown: Path of the new file, for messages.
        """
        with disk_errors(shown), suppress(FileNotFoundError):
            os.stat(name, dir_fd=self._last_folder.descriptor, follow_symlinks=False)
            raise FileExistsError

    def has(self, path: str, size_bytes: int, checksum: int) -> bool:
        """Return True if a regular file with this path and content exists below the output folder.

        Args:
            path: Path of the file in the catalog.
            size_bytes: Size of its content.
            checksum: CRC-32C of its content.

        Raises:
            InvalidInput: The path cannot be the name of a file below the folder.
            Conflict: A file or link is in the way of a folder.
            OutputFailed: The file cannot be read.
        """
        *folders, name = safe_parts(path)
        folder = self._folder(folders)
        with disk_errors(f"{self._prefix}{path}"):
            status = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or status.st_size != size_bytes:
                return False
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder.descriptor)
            with open(descriptor, "rb") as file:
                found = 0
                while block := file.read(_BLOCK_BYTES):
                    found = crc32c(block, found)
        return found == checksum

    def make_folder(self, path: str) -> None:
        """Create a folder below the output folder, unless it exists.

        Args:
            path: Path of the folder in the catalog, without a slash at its end.

        Raises:
            InvalidInput: The path cannot be the name of a folder below the output folder.
            Conflict: A file or link is in the way.
            OutputFailed: The folder cannot be created.
        """
        self._folder(list(safe_parts(path)))

    @property
    def has_finished(self) -> bool:
        """True if `finished` would return at least one file."""
        return self._files.has_finished

    def finished(self) -> list[tuple[Of, CafcatError | None]]:
        """Return the files that got their names, or could not get them, since the last call of this method.

        Returns:
            The `of` of each file with None, or with the error because of which the file was dropped.
        """
        finished = self._files.finished()
        if not self._checks_first and not self._output.overwrite:
            self._checks_first = any(isinstance(error, Conflict) for _, error in finished)
        return finished

    def commit(self) -> None:
        """Give all files their names, and make the names of files and folders durable. Raises OutputFailed.

        The names of the folders above the output folder become durable, too.
        """
        self._files.commit()
        with disk_errors(self._output.shown):
            sync_ancestors(self._output.shown)

    def _folder(self, names: list[str]) -> OpenFolder:
        """Return an open folder below the output folder, which is created if it is missing.

        The folders of the last path stay open, because the next file is mostly in one of them.

        Args:
            names: Names of the folders from the output folder down; empty for the output folder itself.
        """
        self._last = None
        common = 0
        while common < min(len(names), len(self._open)) and self._open[common][0] == names[common]:
            common += 1
        del self._open[common:]
        for depth in range(common, len(names)):
            self._open.append((names[depth], self._enter(names[depth], names[: depth + 1])))
        return self._open[-1][1] if self._open else self._root

    def _enter(self, name: str, path: list[str]) -> OpenFolder:
        parent = self._open[-1][1] if self._open else self._root
        shown = os.path.join(self._output.shown, *path)
        with disk_errors(shown):
            with suppress(FileExistsError):
                os.mkdir(name, self._output.folder_mode, dir_fd=parent.descriptor)
            try:
                folder = OpenFolder.at(name, below=parent)
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP):
                    message = f"a file or link has the name of the output's folder, {shown_path(shown)}"
                    raise Conflict(message, path=shown) from error
                raise
        self._files.has_name_in(parent)
        return folder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)
        self._open.clear()

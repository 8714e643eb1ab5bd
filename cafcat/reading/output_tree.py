"""A tree of files below one folder. Each file appears with all of its content, and none outside the folder."""

import os
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

from cafcat.errors import CafcatError, Conflict, InvalidInput
from cafcat.reading.durable_files import DurableFiles, OpenFolder
from cafcat.reading.output_errors import disk_errors
from cafcat.reading.outputs import Output
from cafcat.support.syncing import sync_ancestors

__all__ = ["OutputTree", "safe_parts"]

Of = TypeVar("Of")


def safe_parts(path: str) -> tuple[str, ...]:
    """Return the names of the folders and of the file in a catalog path.

    Raises:
        InvalidInput: The path could leave the folder that it is extracted to, or names no file on a disk: "..",
            absolute names, empty parts, NUL, drive letters.
    """
    parts = tuple(path.split("/"))
    drive = os.path.splitdrive(path)[0]
    if drive or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise InvalidInput("the name cannot be a file below a folder", path=path)
    return parts


class OutputTree(Generic[Of]):
    """Writes files below a folder, which is made if it is missing. A context manager: files that were not committed
    when it is left are dropped.

    Symbolic links below the folder are not followed: a link in the place of a folder is a Conflict. The files that
    were written are durable, and have their names, after `commit`.
    """

    def __init__(self, output: Output) -> None:
        """Make and open the folder. Raises OutputFailed or Conflict if that fails."""
        self._output = output
        directory = output.path
        with disk_errors(output.shown):
            directory.mkdir(parents=True, exist_ok=True, mode=output.folder_mode)
            self._root = OpenFolder.at(directory)
        self._prefix = str(directory / "x")[:-1]
        self._files: DurableFiles[Of] = DurableFiles(output.shown, overwrite=output.overwrite, mode=output.mode)
        self._open: list[tuple[str, OpenFolder]] = []
        self._last: str | None = None
        """The path that was written last, up to the slash before the file's name; that folder is _last_folder."""
        self._last_folder = self._root
        self._checks_first = False
        """True after the first Conflict: existing files are then found before content is written."""

    def write(self, path: str, blocks: Iterable[bytes], modified_ns: int | None, of: Of) -> None:
        """Write a file below the folder. It takes its name later.

        Args:
            path: Catalog path of the file.
            blocks: Its content. Their errors are raised.
            modified_ns: Its modification time, in nanoseconds since 1970; None for now.
            of: What `finished` returns when the file has its name.

        Raises:
            InvalidInput: The path cannot be the name of a file below the folder.
            Conflict: A file, folder or link is in the way.
            OutputFailed: The disk is full or fails.
        """
        name = path.rsplit("/", 1)[-1]
        # Files that follow each other are mostly in one folder, whose name was checked just now.
        if path[: -len(name)] != self._last or name in ("", ".", "..") or "\0" in name:
            *folders, name = safe_parts(path)
            self._last_folder = self._folder(folders)
            self._last = path[: -len(name)]
        shown = f"{self._prefix}{path}"
        if self._checks_first:
            self._check_free(name, shown)
        self._files.write(self._last_folder, name, blocks, modified_ns, shown=shown, of=of)

    def _check_free(self, name: str, shown: str) -> None:
        """Raise Conflict for an existing file."""
        with suppress(FileNotFoundError), disk_errors(shown):
            os.stat(name, dir_fd=self._last_folder.descriptor, follow_symlinks=False)
            raise FileExistsError

    def make_folder(self, path: str) -> None:
        """Make a folder of the tree, unless it exists. Raises InvalidInput, Conflict, OutputFailed."""
        self._folder(list(safe_parts(path)))

    @property
    def has_finished(self) -> bool:
        """True if `finished` returns a file."""
        return self._files.has_finished

    def finished(self) -> list[tuple[Of, CafcatError | None]]:
        """Return, once each, files that took their names, and with an error those that could not."""
        finished = self._files.finished()
        if not self._checks_first and not self._output.overwrite:
            self._checks_first = any(isinstance(error, Conflict) for _, error in finished)
        return finished

    def commit(self) -> None:
        """Give all files their names, and make these durable with the names of all folders, also of those above
        the tree. Raises OutputFailed."""
        self._files.commit()
        with disk_errors(self._output.shown):
            sync_ancestors(self._output.shown)

    def _folder(self, names: list[str]) -> OpenFolder:
        """Return an open folder of the tree, which is made if it is missing. The folders of the last path stay
        open, because the next file is mostly in one of them."""
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
        with disk_errors(str(self._output.path.joinpath(*path))):
            with suppress(FileExistsError):
                os.mkdir(name, self._output.folder_mode, dir_fd=parent.descriptor)
            folder = OpenFolder.at(name, below=parent)
        self._files.has_name_in(parent)
        return folder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)
        self._open.clear()

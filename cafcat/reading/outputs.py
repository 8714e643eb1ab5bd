"""Files for users: each appears whole and durable, or not at all, and never outside the folder meant for it."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from cafcat.errors import CafcatError, Conflict, InvalidInput
from cafcat.reading.durable_files import DurableFiles, OpenFolder
from cafcat.reading.output_errors import disk_errors
from cafcat.support.new_file import NewFile, new_file, new_named_file, write_all
from cafcat.support.syncing import sync_ancestors, sync_file, sync_folder

__all__ = ["Output", "OutputTree", "is_special", "placed", "safe_parts", "unnamed", "write_single"]

Of = TypeVar("Of")


@dataclass(frozen=True, slots=True)
class Output:
    """Where to write a file, or the files of a folder.

    path: as the user gave it. overwrite: whether to replace existing files. mode: permissions of new files, less
    the umask.
    """

    path: Path
    overwrite: bool = False
    mode: int = 0o666

    @property
    def folder_mode(self) -> int:
        """Permissions of new folders, less the umask: who may read a file may enter its folder."""
        return self.mode | (self.mode & 0o444) >> 2

    @property
    def shown(self) -> str:
        """The path, for messages."""
        return str(self.path)

    @property
    def is_special(self) -> bool:
        """Whether it is written to, and not replaced: a device, a pipe, a socket."""
        return is_special(self.path)

    def check_free(self) -> None:
        """Raise Conflict if there is a folder of that name, or a file that is not to be overwritten."""
        with disk_errors(self.shown):
            if self.path.is_dir():
                raise Conflict("there is a folder of that name", path=self.shown)
            if not self.overwrite and os.path.lexists(self.path) and not self.is_special:
                raise FileExistsError

    def check_file(self) -> None:
        """Raise Conflict like `check_free`, and InvalidInput for a device, a pipe or a socket."""
        self.check_free()
        if self.is_special:
            raise InvalidInput("this needs a file, not a device or pipe", path=self.shown)


def is_special(path: Path) -> bool:
    """Return whether a path is written to, and not replaced: a device, a pipe, a socket."""
    return path.is_char_device() or path.is_fifo() or path.is_socket()


def safe_parts(path: str) -> tuple[str, ...]:
    """Return a catalog path as names of folders and file. Raises InvalidInput for a path that could leave the
    folder that it is extracted to, or means nothing on disk: "..", absolute names, empty parts, NUL, drive letters.
    """
    parts = tuple(path.split("/"))
    drive = os.path.splitdrive(path)[0]
    if drive or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise InvalidInput("the name cannot be a file below a folder", path=path)
    return parts


def write_single(output: Output, blocks: Iterable[bytes], modified_ns: int | None) -> None:
    """Write one file of the user; it is durable when this returns. A device, a pipe or a socket is written to.

    Raises Conflict before a byte is read if there is a file or folder already, InvalidInput if the file system
    cannot have such a name, OutputFailed if it cannot be written; then, as after any error of `blocks`, nothing is
    left behind.
    """
    output.check_free()
    if output.is_special:
        _write_into(output, blocks)
        return
    with _taking_name(output, new_file) as file, disk_errors(output.shown):
        for block in blocks:
            write_all(file.descriptor, block)
        if modified_ns is not None:
            os.utime(file.descriptor, ns=(modified_ns, modified_ns))


def _write_into(output: Output, blocks: Iterable[bytes]) -> None:
    with disk_errors(output.shown), output.path.open("wb", buffering=0) as file:
        for block in blocks:
            write_all(file.fileno(), block)


@contextmanager
def unnamed(output: Output) -> Iterator[int]:
    """The descriptor of a new file, for the caller to fill. When this is left, that file is durable and has its
    name; after an error nothing is left of it. Raises Conflict before that as `write_single` does, InvalidInput for
    a device or pipe, OutputFailed."""
    output.check_file()
    with _taking_name(output, new_file) as file:
        yield file.descriptor


@contextmanager
def placed(output: Output) -> Iterator[str]:
    """The absolute path of a new, empty file beside `output`, for libraries that need one; else like `unnamed`.
    The library has to write to this file: it must not replace it."""
    output.check_file()
    with _taking_name(output, new_named_file) as file:
        yield f"{os.path.abspath(output.path.parent)}/{file.temporary}"


@contextmanager
def _taking_name(output: Output, make: Callable[[int, int], NewFile]) -> Iterator[NewFile]:
    name, shown = output.path.name, output.shown
    with disk_errors(shown):
        folder = OpenFolder.at(output.path.parent)
        file = make(folder.descriptor, output.mode)
    try:
        yield file
        with disk_errors(shown):
            sync_file(file.descriptor)
            file.take_name(name, overwrite=output.overwrite)
    except BaseException:
        file.discard()
        raise
    with disk_errors(shown):
        sync_folder(folder.descriptor)
        sync_ancestors(str(output.path.parent))


class OutputTree(Generic[Of]):
    """A folder to extract to, made if it is missing. Only folders that are really folders are entered: a
    symbolic link below it, whoever put it there, is in the way and not a way out.

    The files that were written are durable, and have their names, after `commit`.
    """

    def __init__(self, output: Output) -> None:
        """Raises OutputFailed or Conflict if the folder cannot be made or opened."""
        self._output = output
        directory = output.path
        with disk_errors(output.shown):
            directory.mkdir(parents=True, exist_ok=True, mode=output.folder_mode)
            self._root = OpenFolder.at(directory)
        self._prefix = str(directory / "x")[:-1]
        self._files: DurableFiles[Of] = DurableFiles(output.shown, overwrite=output.overwrite, mode=output.mode)
        self._open: list[tuple[str, OpenFolder]] = []
        self._last: str | None = None
        """Beginning of the path that was written last, with the slash; that folder is _last_folder."""
        self._last_folder = self._root
        self._looks_first = False

    def write(self, path: str, blocks: Iterable[bytes], modified_ns: int | None, of: Of) -> None:
        """Write a file at a catalog path below the folder; `finished` returns `of` when it has its name. Raises
        InvalidInput, Conflict, OutputFailed, and whatever `blocks` raises."""
        name = path.rsplit("/", 1)[-1]
        # What follows each other is mostly in one folder, and looked at just now.
        if path[: -len(name)] != self._last or name in ("", ".", "..") or "\0" in name:
            *folders, name = safe_parts(path)
            self._last_folder = self._folder(folders)
            self._last = path[: -len(name)]
        shown = f"{self._prefix}{path}"
        if self._looks_first:
            self._look(name, shown)
        self._files.write(self._last_folder, name, blocks, modified_ns, shown=shown, of=of)

    def _look(self, name: str, shown: str) -> None:
        """Raise Conflict for an existing file, before its content is written. Called once a first one was found."""
        with suppress(FileNotFoundError), disk_errors(shown):
            os.stat(name, dir_fd=self._last_folder.descriptor, follow_symlinks=False)
            raise FileExistsError

    def make_folder(self, path: str) -> None:
        """Make a folder of the tree, unless it exists. Raises InvalidInput, Conflict, OutputFailed."""
        self._folder(list(safe_parts(path)))

    @property
    def has_finished(self) -> bool:
        """Whether `finished` returns anything."""
        return self._files.has_finished

    def finished(self) -> list[tuple[Of, CafcatError | None]]:
        """Return, once each, files that took their names, and with an error those that could not."""
        finished = self._files.finished()
        if not self._looks_first and not self._output.overwrite:
            self._looks_first = any(isinstance(error, Conflict) for _, error in finished)
        return finished

    def commit(self) -> None:
        """Give all files their names; make these durable, and those of all folders, also above this one. Raises
        OutputFailed."""
        self._files.commit()
        with disk_errors(self._output.shown):
            sync_ancestors(self._output.shown)

    def _folder(self, names: list[str]) -> OpenFolder:
        """Folders of the last path stay open, so that neighbours find theirs at once."""
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

"""Run a command of cafcat, and record the files that a power cut would leave at each moment.

Usage: `python -m tests.crash.power_cut ORDER`, where ORDER is a JSON document.

The model has two trees at each moment. `least` has only synced data: the names of a folder as they were when the
folder was last synced, and contents likewise. So a file exists in it if all folders above it do. `names` has all
present names, as after a commit of the file system's journal, but only synced contents: ext4 leaves files of 0
bytes. A real file system leaves a state between these two.
"""

import json
import os
import pickle
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Point", "Recorder"]

Tree = dict[str, bytes | None]
"""Contents by path relative to the watched folder; None for a folder."""
_NAMING = ("link", "unlink", "remove", "rename", "replace", "mkdir", "rmdir")
_SYNCING = ("fsync", "fdatasync")


class Point(NamedTuple):
    """The files that a power cut just before a call would leave.

    printed: number of bytes that the command had written to its standard output.
    """

    before: str
    least: Tree
    names: Tree
    printed: int


class Recorder:
    """Wraps functions of `os` and of the C library that cafcat calls."""

    def __init__(self, root: Path, unsynced: list[str]) -> None:
        """Watch a folder.

        Args:
            root: the folder.
            unsynced: existing folders in it whose names were never synced.
        """
        self._root = str(root)
        self._lock = threading.RLock()
        self._contents: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, int]] = {}
        self._is_folder: set[int] = set()
        self._numbers: dict[int, int] = {}
        """File numbers of this class by inode: the file system gives the inode of a removed file to a new one."""
        self._made = 0
        self.points: list[Point] = []
        self._open = os.open
        self._see(self._look_at_all())
        for name in unsynced:
            path = root / name
            del self._folders[self._number(path.parent.stat().st_ino)][path.name]

    def arm(self) -> None:
        """Record calls from now on."""
        for name in _NAMING:
            setattr(os, name, self._noted(name, getattr(os, name)))
        for name in _SYNCING:
            setattr(os, name, self._synced(name, getattr(os, name), self._look_at))
        vars(os)["open"] = self._opened
        try:
            from cafcat.support import syncing
        except ImportError:  # a version of cafcat that syncs only single files
            return
        library: Any = _Library()
        library.syncfs = self._synced("syncfs", syncing._library().syncfs, lambda _: self._look_at_all())
        library.renameat2 = self._noted("renameat2", syncing._library().renameat2)
        library.fstatfs = syncing._library().fstatfs
        vars(syncing)["_library"] = lambda: library

    def note(self, before: str) -> None:
        """Add a point."""
        with self._lock:
            root = self._number(os.stat(self._root).st_ino)
            now, least = self._tree(root, self._names_now()), self._tree(root, self._folders)
            self.points.append(Point(before, least, now, os.fstat(1).st_size))

    def _noted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                self.note(f"{name} {arguments[:2]}")
                return function(*arguments, **named)

        return call

    def _synced(self, name: str, function: Callable[..., Any], look: Callable[[Any], Any]) -> Callable[..., Any]:
        """Wrap a function that syncs. The state at the beginning of the call is durable after it."""

        def call(file: Any) -> Any:
            with self._lock:
                self.note(f"{name} {file}")
                seen = look(file)
            result = function(file)
            with self._lock:
                self._see(seen)
            return result

        return call

    def _opened(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with self._lock:
            if flags & os.O_CREAT:
                self.note(f"open {path}")
            descriptor = self._open(path, flags, mode, dir_fd=dir_fd)
            if flags & (os.O_CREAT | getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY):
                found = os.fstat(descriptor)
                if not found.st_size:
                    self._made += 1
                    self._numbers[found.st_ino] = -self._made
            return descriptor

    def _look_at(self, file: Any) -> dict[int, Any]:
        """Return the names or the content of an open file, by its number."""
        number = file if isinstance(file, int) else file.fileno()
        found = os.fstat(number)
        path = os.readlink(f"/proc/self/fd/{number}")
        if not f"{path}/".startswith(f"{self._root}/"):
            return {}
        if stat.S_ISDIR(found.st_mode):
            return {self._number(found.st_ino): self._names_in(path)}
        return {self._number(found.st_ino): self._content(f"/proc/self/fd/{number}")}

    def _number(self, inode: int) -> int:
        return self._numbers.get(inode, inode)

    def _look_at_all(self) -> dict[int, Any]:
        """Return names and contents of everything below the root, and of open files without names."""
        seen: dict[int, Any] = {}
        for folder, _, files in os.walk(self._root):
            seen[self._number(os.stat(folder).st_ino)] = self._names_in(folder)
            for name in files:
                seen[self._number(os.lstat(f"{folder}/{name}").st_ino)] = self._content(f"{folder}/{name}")
        for number in map(int, os.listdir("/proc/self/fd")):
            try:
                seen |= self._look_at(number)
            except OSError:  # the descriptor of the listing itself
                continue
        return seen

    def _names_in(self, folder: str) -> dict[str, int]:
        names = {}
        for entry in os.scandir(folder):
            names[entry.name] = self._number(entry.inode())
            if entry.is_dir(follow_symlinks=False):
                self._is_folder.add(names[entry.name])
        return names

    def _content(self, path: str) -> bytes:
        """Read a file through a new descriptor, because the synced one may be open only for writing."""
        descriptor = self._open(path, os.O_RDONLY)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def _see(self, seen: dict[int, Any]) -> None:
        for number, found in seen.items():
            if isinstance(found, bytes):
                self._contents[number] = found
            else:
                self._folders[number] = found

    def _names_now(self) -> dict[int, dict[str, int]]:
        folders = [folder for folder, _, _ in os.walk(self._root)]
        return {self._number(os.stat(folder).st_ino): self._names_in(folder) for folder in folders}

    def _tree(self, number: int, folders: dict[int, dict[str, int]], path: str = "") -> Tree:
        tree: Tree = {}
        for name, inner in folders.get(number, {}).items():
            if inner in self._is_folder:
                tree[path + name] = None
                tree |= self._tree(inner, folders, f"{path}{name}/")
            else:
                tree[path + name] = self._contents.get(inner, b"")
        return tree


class _Library:
    """Replaces the C library."""


def _set_limits(order: dict[str, Any]) -> None:
    """Change limits of cafcat, so that a few files count as many."""
    if not order["limits"]:
        return
    from cafcat.reading import durable_files

    for name, value in order["limits"].items():
        setattr(durable_files, name, value)


def _refuse_unnamed_files() -> None:
    from cafcat.support import new_file, syncing

    vars(new_file)["_UNNAMED_FLAGS"] = os.O_RDWR | os.O_DIRECTORY
    vars(syncing)["_type_of"] = lambda _: 0


def main() -> None:
    order = json.loads(sys.argv[1])
    if order["is_poor"]:
        _refuse_unnamed_files()
    _set_limits(order)
    from cafcat.cli.app import run

    recorder = Recorder(Path(order["root"]), order["unsynced"])
    recorder.arm()
    code = 70
    try:
        code = run(order["arguments"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    sys.stdout.flush()
    recorder.note("the end")
    Path(order["points"]).write_bytes(pickle.dumps([tuple(point) for point in recorder.points]))
    os._exit(code)


if __name__ == "__main__":
    main()

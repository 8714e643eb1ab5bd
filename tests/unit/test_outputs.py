"""Output files are whole or absent, on every kind of file system."""

import errno
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cafcat.errors import CafcatError, Conflict, Corrupt, InvalidInput, OutputFailed
from cafcat.reading import durable_files
from cafcat.reading.output_tree import OutputTree
from cafcat.reading.outputs import Output, new_output_path, write_single
from cafcat.support.syncing import can_sync_file_system

MODIFIED_NS = 1_234_567_890_123_456_000


def refuse_unnamed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)


def refuse_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)


@pytest.fixture(params=["all", "no unnamed files", "no links", "neither", "nor renames that replace nothing"])
def _file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param not in ("all", "no links"):
        refuse_unnamed_files(monkeypatch)
    if request.param not in ("all", "no unnamed files"):
        refuse_links(monkeypatch)
    if request.param.startswith("nor"):
        monkeypatch.setattr("cafcat.support.new_file.rename_new", lambda *_: False)


class Target:
    """A folder for extracted files. Each file is committed by itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, path: str, blocks: Iterable[bytes], modified_ns: int | None, *, overwrite: bool) -> None:
        tree: OutputTree[str]
        with OutputTree(Output(self.folder, overwrite)) as tree:
            tree.write(path, blocks, modified_ns, path)
            commit(tree)


def commit(tree: OutputTree[str]) -> list[str]:
    """Commit, and return the names of the files. Raises the first error of a file."""
    tree.commit()
    names = []
    for name, error in tree.finished():
        if error is not None:
            raise error
        names.append(name)
    return names


@pytest.fixture
def tree(tmp_path: Path) -> Target:
    folder = tmp_path / "out"
    folder.mkdir()
    return Target(folder)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("_file_system")
def test_file_is_replaced_only_with_overwrite(tree: Target, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        tree.write("a/x", [b"one", b"", b"two"], MODIFIED_NS, overwrite=False)
    finally:
        os.umask(before)
    written = (tmp_path / "out/a/x").stat()
    assert (written.st_mtime_ns, written.st_mode & 0o777, written.st_nlink) == (MODIFIED_NS, 0o640, 1)
    with pytest.raises(Conflict):
        tree.write("a/x", [b"other"], None, overwrite=False)
    assert files(tmp_path / "out") == {"a/x": b"onetwo"}
    tree.write("a/x", [b"other"], MODIFIED_NS, overwrite=True)
    tree.write("a/new", [], MODIFIED_NS, overwrite=True)
    assert files(tmp_path / "out") == {"a/x": b"other", "a/new": b""}


@pytest.mark.usefixtures("_file_system")
def test_existing_folders_and_links_are_kept(tree: Target, tmp_path: Path) -> None:
    (tmp_path / "out/folder").mkdir()
    (tmp_path / "out/link").symlink_to(tmp_path / "outside")
    for overwrite in (False, True):
        with pytest.raises(Conflict):
            tree.write("folder", [b"x"], None, overwrite=overwrite)
    with pytest.raises(Conflict):
        tree.write("link", [b"x"], None, overwrite=False)
    tree.write("link", [b"x"], None, overwrite=True)
    assert files(tmp_path) == {"out/link": b"x"}
    assert not (tmp_path / "out/link").is_symlink()


@pytest.mark.usefixtures("_file_system")
def test_blocks_that_fail_leave_nothing(tree: Target, tmp_path: Path) -> None:
    def blocks() -> Iterator[bytes]:
        yield b"half"
        raise Corrupt("damaged")

    for overwrite in (False, True):
        with pytest.raises(Corrupt):
            tree.write("a/x", blocks(), None, overwrite=overwrite)
    with pytest.raises(InvalidInput):
        tree.write("a/" + "n" * 300, [b"x"], None, overwrite=False)
    assert list((tmp_path / "out/a").iterdir()) == []


def test_short_writes_are_continued(tree: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    tree.write("x", [b"0123456789" * 5, b"!"], None, overwrite=False)
    assert files(tmp_path / "out") == {"x": b"0123456789" * 5 + b"!"}


def test_failing_disk_is_reported(tree: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_file: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(OutputFailed, match="No space left"):
        tree.write("a/x", [b"x"], None, overwrite=False)
    assert list((tmp_path / "out/a").iterdir()) == []


@pytest.mark.parametrize(
    "path", ["/b", "a//b", "a/../b", "../b", "a/", "a/.", "a/..", "", ".", "..", "a/b\0", "/a/b"]
)
@pytest.mark.parametrize("first", ["b", "a/b", "a/a/b"])
def test_names_outside_the_folder_are_refused_after_any_file(tmp_path: Path, first: str, path: str) -> None:
    """The folder of the previous file is still open. Only names inside it may use that descriptor."""
    with OutputTree(Output(tmp_path / "out", overwrite=True)) as tree:
        tree.write(first, [b"x"], None, first)
        with pytest.raises(InvalidInput):
            tree.write(path, [b"y"], None, path)
        tree.write(first, [b"z"], None, first)
        commit(tree)
    assert files(tmp_path / "out") == {first: b"z"}


def test_files_are_written_into_their_own_folders(tmp_path: Path) -> None:
    paths = ["x", "a/x", "a/b/x", "a/x2", "b/x", "ab/x", "x2", "a/b/c/x", "a/b/x2", "b/b/x"]
    tree: OutputTree[str]
    with OutputTree(Output(tmp_path / "out")) as tree:
        for path in paths:
            tree.write(path, [path.encode()], None, path)
        tree.make_folder("z/a")
        tree.write("b/b/x3", [b"b/b/x3"], None, "b/b/x3")
        assert files(tmp_path / "out") == {}
        assert commit(tree) == [*paths, "b/b/x3"]
    assert files(tmp_path / "out") == {path: path.encode() for path in [*paths, "b/b/x3"]}


def test_a_file_in_place_of_the_output_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"file")
    (tmp_path / "link").symlink_to("nothing")
    os.mkfifo(tmp_path / "fifo")
    for name in ("file", "link", "fifo"):
        for overwrite in (False, True):
            with pytest.raises(Conflict, match="this is no folder, and the output needs one"):
                OutputTree(Output(tmp_path / name, overwrite))


def test_link_in_place_of_a_folder_is_refused_after_other_folders(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/link").symlink_to(tmp_path)
    tree: OutputTree[str]
    with OutputTree(Output(tmp_path / "out", overwrite=True)) as tree:
        for _ in range(2):
            tree.write("a/x", [b"x"], None, "a/x")
            with pytest.raises(Conflict):
                tree.write("link/x", [b"y"], None, "link/x")
        commit(tree)
    assert files(tmp_path) == {"out/a/x": b"x"}


def test_new_files_are_written_after_a_file_that_exists(tmp_path: Path) -> None:
    """Once a name was taken, the tree checks each name before it writes. A free name is no error."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/b").write_bytes(b"old")
    tree: OutputTree[str]
    with OutputTree(Output(tmp_path / "out")) as tree:
        tree.write("b", [b"new"], None, "b")
        with pytest.raises(Conflict):
            commit(tree)
        tree.write("a", [b"a"], None, "a")
        with pytest.raises(Conflict):
            tree.write("b", [b"new"], None, "b")
        tree.write("c/d", [b"d"], None, "c/d")
        assert commit(tree) == ["a", "c/d"]
    assert files(tmp_path / "out") == {"a": b"a", "b": b"old", "c/d": b"d"}


KILLED = """
import os, signal, sys
from pathlib import Path
from cafcat.reading.output_tree import OutputTree
from cafcat.reading.outputs import Output
def blocks():
    yield b"half"
    os.kill(os.getpid(), signal.SIGKILL)
OutputTree(Output(Path(sys.argv[1]))).write("x", blocks(), None, "x")
"""


def test_a_process_that_is_killed_leaves_no_half_file(tmp_path: Path) -> None:
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY))
    except OSError:
        pytest.skip("the file system of the temporary folder has no files without names")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def write_many(
    folder: Path, names: Iterable[str], after_each: Callable[[int], object] = lambda _: None
) -> dict[str, CafcatError | None]:
    """Return the errors of the finished files, also if writing fails."""
    found: dict[str, CafcatError | None] = {}
    tree: OutputTree[str]
    with suppress(OutputFailed, KeyboardInterrupt), OutputTree(Output(folder)) as tree:
        try:
            for number, name in enumerate(names):
                tree.write(name, [name.encode()], None, name)
                after_each(number)
            tree.commit()
        finally:
            found |= dict(tree.finished())
    return found


NAMES = [f"{number % 7}/{number}" for number in range(100)]


def no_room(monkeypatch: pytest.MonkeyPatch, name: str, after: int) -> None:
    """Let a function of durable_files fail from a given call on, as on a full disk."""
    calls = iter(range(after))
    real = getattr(durable_files, name)

    def fail(*arguments: Any) -> Any:
        if next(calls, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    monkeypatch.setattr(durable_files, name, fail)


def is_synced_at_once(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return can_sync_file_system(descriptor)
    finally:
        os.close(descriptor)


def test_many_files_are_synced_together_and_few_separately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_synced_at_once(tmp_path):
        pytest.skip("the file system of the temporary folder cannot be synced as a whole")
    calls: Counter[str] = Counter()
    for name in ("sync_file", "sync_file_system", "sync_folder"):
        real = getattr(durable_files, name)
        count = partial(lambda name, real, file: (calls.update([name]), real(file)), name, real)
        monkeypatch.setattr(durable_files, name, count)
    monkeypatch.setattr(durable_files, "_MOST_DESCRIPTORS", 50)
    for folder, names in {"few": NAMES[:5], "many": NAMES}.items():
        assert write_many(tmp_path / folder, names) == dict.fromkeys(names)
        assert files(tmp_path / folder) == {name: name.encode() for name in names}
        if folder == "few":
            assert calls == {"sync_file": 5, "sync_folder": 6}
            calls.clear()
    assert calls["sync_file"] == calls["sync_folder"] == 0
    assert 3 <= calls["sync_file_system"] <= 6


def test_without_a_sync_of_the_file_system_each_file_and_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    real = os.fsync
    monkeypatch.setattr(durable_files, "can_sync_file_system", lambda _: False)
    monkeypatch.setattr(durable_files, "_MOST_DESCRIPTORS", 50)
    monkeypatch.setattr(os, "fsync", lambda file: (synced.add(os.fstat(file).st_ino), real(file)))
    assert write_many(tmp_path / "out", NAMES) == dict.fromkeys(NAMES)
    assert {path.stat().st_ino for path in [tmp_path, tmp_path / "out", *(tmp_path / "out").rglob("*")]} <= synced


def test_descriptors_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("as if 300 were the hard limit")

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/dev/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, before[1]))
        monkeypatch.setattr(resource, "setrlimit", refuse)
        counts: list[int] = []
        names = [f"{number}/x" for number in range(400)]
        found = write_many(tmp_path / "out", names, lambda _: counts.append(len(os.listdir("/dev/fd"))))
        assert found == dict.fromkeys(names)
        assert max(counts) <= used + 2 * 22 + 8  # two batches, and the folders above the next file
    finally:
        monkeypatch.undo()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("_file_system")
@pytest.mark.parametrize(("failing", "after"), [("write_all", 80), ("sync_file_system", 2), ("sync_file", 60)])
def test_full_disk_leaves_only_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, after: int
) -> None:
    """Files that have their names stay, and are reported. Files that were not synced yet have no names."""
    monkeypatch.setattr(durable_files, "_MOST_DESCRIPTORS", 30)
    if failing != "sync_file_system":
        monkeypatch.setattr(durable_files, "can_sync_file_system", lambda _: False)
    elif not is_synced_at_once(tmp_path):
        pytest.skip("the file system of the temporary folder cannot be synced as a whole")
    no_room(monkeypatch, failing, after)
    found = write_many(tmp_path / "out", NAMES)
    assert files(tmp_path / "out") == {name: name.encode() for name, error in found.items() if error is None}
    assert 0 < len(found) < 100


@pytest.mark.usefixtures("_file_system")
def test_interrupt_leaves_only_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_files, "_MOST_DESCRIPTORS", 30)

    def interrupt(number: int) -> None:
        if number == 80:
            raise KeyboardInterrupt

    found = write_many(tmp_path / "out", NAMES, interrupt)
    assert files(tmp_path / "out") == {name: name.encode() for name in found}
    assert 0 < len(found) < 80


def test_after_one_existing_file_names_are_checked_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    for name in "abc":
        (tmp_path / "out" / name).write_bytes(b"older")
    tree: OutputTree[str]
    with OutputTree(Output(tmp_path / "out")) as tree:
        tree.write("a", [b"x"], None, "a")
        with pytest.raises(Conflict):
            commit(tree)
        monkeypatch.setattr(durable_files, "write_all", None)
        for name in "bc":
            with pytest.raises(Conflict, match="already"):
                tree.write(name, [b"x"], None, name)
    assert files(tmp_path / "out") == dict.fromkeys("abc", b"older")


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_files_and_folders_are_not_wider_than_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        Target(tmp_path / "out").write("a/b/x", [b"x"], None, overwrite=False)
        write_single(Output(tmp_path / "single"), None, [b"x"])
        write_single(Output(tmp_path / "private", mode=0o600), None, [b"x"])
        with new_output_path(Output(tmp_path / "placed")) as path:
            assert Path(path).stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    wide, wide_folder = 0o666 & ~mask, 0o777 & ~mask
    assert modes == {
        "out": wide_folder,
        "a": wide_folder,
        "b": wide_folder,
        "x": wide,
        "single": wide,
        "placed": wide,
        "private": 0o600,
    }

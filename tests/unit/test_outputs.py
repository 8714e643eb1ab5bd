"""Files on disk: whole or not at all, on every kind of file system."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cafcat.errors import Conflict, Corrupt, InvalidInput, OutputFailed
from cafcat.resolve.outputs import OutputTree

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


@pytest.fixture(params=["all", "no unnamed files", "no links", "neither"])
def _file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param in ("no unnamed files", "neither"):
        refuse_unnamed_files(monkeypatch)
    if request.param in ("no links", "neither"):
        refuse_links(monkeypatch)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[OutputTree]:
    with OutputTree(tmp_path / "out") as tree:
        yield tree


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("_file_system")
def test_a_file_is_written_and_replaced_only_if_asked(tree: OutputTree, tmp_path: Path) -> None:
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
def test_a_folder_or_a_link_in_the_way_stays(tree: OutputTree, tmp_path: Path) -> None:
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
def test_blocks_that_fail_leave_nothing(tree: OutputTree, tmp_path: Path) -> None:
    def blocks() -> Iterator[bytes]:
        yield b"half"
        raise Corrupt("damaged")

    for overwrite in (False, True):
        with pytest.raises(Corrupt):
            tree.write("a/x", blocks(), None, overwrite=overwrite)
    with pytest.raises(InvalidInput):
        tree.write("a/" + "n" * 300, [b"x"], None, overwrite=False)
    assert list((tmp_path / "out/a").iterdir()) == []


def test_a_disk_that_takes_less_at_once_is_asked_again(
    tree: OutputTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    tree.write("x", [b"0123456789" * 5, b"!"], None, overwrite=False)
    assert files(tmp_path / "out") == {"x": b"0123456789" * 5 + b"!"}


def test_a_disk_that_fails_is_said(tree: OutputTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_no_name_leaves_the_folder_whatever_was_written_before(tree: OutputTree, first: str, path: str) -> None:
    """The folder of the file before is still open: only a name that is really in it may be taken for one."""
    tree.write(first, [b"x"], None, overwrite=False)
    with pytest.raises(InvalidInput):
        tree.write(path, [b"y"], None, overwrite=True)
    tree.write(first, [b"z"], None, overwrite=True)


def test_folders_are_told_apart(tree: OutputTree, tmp_path: Path) -> None:
    paths = ["x", "a/x", "a/b/x", "a/x2", "b/x", "ab/x", "x2", "a/b/c/x", "a/b/x2", "b/b/x"]
    for path in paths:
        tree.write(path, [path.encode()], None, overwrite=False)
    tree.make_folder("z/a")
    tree.write("b/b/x3", [b"b/b/x3"], None, overwrite=False)
    assert files(tmp_path / "out") == {path: path.encode() for path in [*paths, "b/b/x3"]}


def test_a_folder_that_cannot_be_entered_is_not_taken_for_the_one_before(tree: OutputTree, tmp_path: Path) -> None:
    (tmp_path / "out/link").symlink_to(tmp_path)
    for _ in range(2):
        tree.write("a/x", [b"x"], None, overwrite=True)
        with pytest.raises(Conflict):
            tree.write("link/x", [b"y"], None, overwrite=True)
    assert files(tmp_path) == {"out/a/x": b"x"}


KILLED = """
import os, signal, sys
from pathlib import Path
from cafcat.resolve.outputs import OutputTree
def blocks():
    yield b"half"
    os.kill(os.getpid(), signal.SIGKILL)
OutputTree(Path(sys.argv[1])).write("x", blocks(), None, overwrite=False)
"""


def test_a_process_that_is_killed_leaves_no_half_file(tmp_path: Path) -> None:
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY))
    except OSError:
        pytest.skip("the file system of the temporary folder has no files without names")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []

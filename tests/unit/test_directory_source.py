"""Folders as sources: odd files in them, and changes between listing, opening and reading."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cafcat.errors import InvalidInput, NotFound, SourceFailed
from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.sources.local.directory import DirectorySource
from tests.worlds.listeners import Heard
from tests.worlds.normal_user import as_normal_user


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder "tree" in the current folder."""
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


def problems(source: DirectorySource) -> list[tuple[str, ProblemKind]]:
    return [(item.path, item.kind) for item in source.files() if isinstance(item, FileProblem)]


def paths(source: DirectorySource) -> list[str]:
    return [item.path for item in source.files() if isinstance(item, SourceFile)]


def only_file(source: DirectorySource) -> SourceFile:
    (item,) = source.files()
    assert isinstance(item, SourceFile)
    return item


# ---- names ----


@pytest.mark.parametrize(
    ("typed", "prefix", "expected"),
    [
        ("tree", "", "tree/sub/f"),
        ("tree/", "", "tree/sub/f"),
        ("./tree", "", "tree/sub/f"),
        (".", "", "tree/sub/f"),
        ("tree/sub/f", "", "tree/sub/f"),
        ("tree/sub/..", "", "sub/f"),
        ("tree", "p", "p/tree/sub/f"),
        ("tree", "p/q/", "p/q/tree/sub/f"),
        (".", "/p/./q", "p/q/tree/sub/f"),
        ("tree/sub/f", "../p", "p/tree/sub/f"),
    ],
)
def test_names_begin_with_the_typed_name(tree: Path, typed: str, prefix: str, expected: str) -> None:
    (tree / "sub").mkdir()
    (tree / "sub" / "f").write_bytes(b"data")
    source = DirectorySource(typed, prefix=prefix)
    file = only_file(source)
    assert file.path == expected
    assert source.name == typed
    with source.open(file) as opened:
        assert opened.read() == b"data"


def test_a_removed_beginning_is_warned_of(tree: Path) -> None:
    heard = Heard()
    DirectorySource("tree", progress=heard)
    assert heard.warnings == []
    source = DirectorySource(str(tree), progress=heard)
    (tree / "f").touch()
    assert paths(source) == [f"{tree}/f"[1:]]
    assert heard.warnings == ["Removing leading `/' from member names"]


def test_names_that_are_not_utf8_are_refused_each(tree: Path) -> None:
    (tree / os.fsdecode(b"caf\xe9")).touch()
    folder = tree / os.fsdecode(b"d\xff")
    folder.mkdir()
    (folder / "below").touch()
    (tree / "good").touch()
    source = DirectorySource("tree")
    assert paths(source) == ["tree/good"]
    assert sorted(problems(source)) == [
        ("tree/caf\\xe9", ProblemKind.NAME),
        ("tree/d\\xff/below", ProblemKind.NAME),
    ]


def test_a_source_that_is_not_utf8_has_a_printable_name(tree: Path) -> None:
    folder = tree / os.fsdecode(b"\xe9")
    folder.mkdir()
    assert DirectorySource(f"tree/{folder.name}").name == "tree/\\xe9"


def test_paths_beyond_the_limit_of_the_system_are_one_problem(tree: Path) -> None:
    start = Path.cwd()
    for _ in range(25):
        Path("d" * 200).mkdir()
        os.chdir("d" * 200)
    Path("f").touch()
    os.chdir(start)
    (problem,) = problems(DirectorySource("."))
    assert problem[1] == ProblemKind.NAME
    assert 4000 < len(problem[0]) < 4400


def test_the_length_of_the_prefix_counts(tree: Path) -> None:
    (tree / ("f" * 200)).touch()
    fits = "p" * (2048 - len("/tree/") - 200)
    assert len(paths(DirectorySource("tree", prefix=fits))) == 1
    assert [kind for _, kind in problems(DirectorySource("tree", prefix=fits + "p"))] == [ProblemKind.NAME]


# ---- valid and invalid sources ----


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        ("", InvalidInput),
        ("a\0b", InvalidInput),
        ("nothing", NotFound),
        ("tree/file/x", NotFound),
        ("tree/file/", NotFound),
        ("tree/fifo", InvalidInput),
        ("tree/round", InvalidInput),
        ("tree/dangling", NotFound),
        ("/dev/null", InvalidInput),
        ("n" * 300, InvalidInput),
    ],
)
def test_source_that_is_no_file_or_folder_is_refused_at_once(
    tree: Path, typed: str, error: type[Exception]
) -> None:
    (tree / "file").touch()
    os.mkfifo(tree / "fifo")
    (tree / "round").symlink_to("round")
    (tree / "dangling").symlink_to("nowhere")
    with pytest.raises(error):
        DirectorySource(typed)


def test_inaccessible_source_is_refused_at_once(tree: Path) -> None:
    (tree / "locked" / "sub").mkdir(parents=True)
    (tree / "locked").chmod(0)
    with as_normal_user(), pytest.raises(SourceFailed) as caught:
        DirectorySource("tree/locked/sub")
    assert caught.value.problem == "unreadable"


@pytest.mark.parametrize("typed", ["link", "link/"])
def test_a_symlink_that_was_typed_is_followed(tree: Path, typed: str) -> None:
    (tree / "file").write_bytes(b"data")
    Path("link").symlink_to("tree")
    assert paths(DirectorySource(typed)) == ["link/file"]


def test_a_symlink_to_a_file_that_was_typed_is_followed(tree: Path) -> None:
    (tree / "file").write_bytes(b"data")
    Path("link").symlink_to("tree/file")
    source = DirectorySource("link")
    with source.open(only_file(source)) as opened:
        assert opened.read() == b"data"


def test_a_source_that_vanishes_before_it_is_walked_is_one_problem(tree: Path) -> None:
    source = DirectorySource("tree")
    tree.rmdir()
    assert problems(source) == [("tree", ProblemKind.VANISHED)]


# ---- kinds of files in folders ----


def test_links_and_special_files_are_problems(tree: Path) -> None:
    os.mkfifo(tree / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("tree/socket")
    (tree / "file").touch()
    (tree / "to file").symlink_to("file")
    (tree / "to folder").symlink_to(".")
    (tree / "dangling").symlink_to("nowhere")
    assert dict(problems(DirectorySource("tree"))) == {
        "tree/dangling": ProblemKind.SYMLINK,
        "tree/fifo": ProblemKind.SPECIAL,
        "tree/socket": ProblemKind.SPECIAL,
        "tree/to file": ProblemKind.SYMLINK,
        "tree/to folder": ProblemKind.SYMLINK,
    }
    assert paths(DirectorySource("tree")) == ["tree/file"]


def test_hard_links_are_ordinary_files(tree: Path) -> None:
    (tree / "one").write_bytes(b"data")
    (tree / "two").hardlink_to(tree / "one")
    assert paths(DirectorySource("tree")) == ["tree/one", "tree/two"]


def test_symlinks_are_followed_with_the_option(tree: Path) -> None:
    Path("outside").mkdir()
    Path("outside/file").write_bytes(b"data")
    (tree / "to folder").symlink_to("../outside")
    (tree / "to file").symlink_to("../outside/file")
    (tree / "dangling").symlink_to("nowhere")
    (tree / "self").symlink_to("self")
    source = DirectorySource("tree", follow_symlinks=True)
    assert paths(source) == ["tree/to file", "tree/to folder/file"]
    assert problems(source) == [("tree/dangling", ProblemKind.VANISHED), ("tree/self", ProblemKind.LOOP)]
    for item in source.files():
        if isinstance(item, SourceFile):
            with source.open(item) as opened:
                assert opened.read() == b"data"


def test_loops_of_symlinks_are_noticed(tree: Path) -> None:
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "f").touch()
    (tree / "a" / "b" / "up").symlink_to("..")
    (tree / "a" / "b" / "top").symlink_to("../..")
    (tree / "beside").symlink_to("a/b")
    source = DirectorySource("tree", follow_symlinks=True)
    assert problems(source) == [
        ("tree/a/b/top", ProblemKind.LOOP),
        ("tree/a/b/up", ProblemKind.LOOP),
        ("tree/beside/top", ProblemKind.LOOP),
        ("tree/beside/up/b", ProblemKind.LOOP),
    ]
    assert paths(source) == ["tree/a/f", "tree/beside/up/f"]


def test_unreadable_folder_is_one_problem_and_the_rest_is_listed(tree: Path) -> None:
    for name in ("a", "locked", "z"):
        (tree / name).mkdir()
        (tree / name / "f").touch()
    (tree / "locked").chmod(0)
    with as_normal_user():
        items = list(DirectorySource("tree").files())
    assert [item.path for item in items] == ["tree/a/f", "tree/locked", "tree/z/f"]
    problem = items[1]
    assert isinstance(problem, FileProblem)
    assert problem.kind == ProblemKind.UNREADABLE
    assert "Permission denied" in problem.message


def test_files_that_change_during_the_walk_are_one_problem_each(tree: Path) -> None:
    for name in ("b", "c", "d"):
        (tree / name).mkdir()
    for name in ("a", "e", "f", "g", "h"):
        (tree / name).touch()
    walk = DirectorySource("tree").files()
    assert next(walk).path == "tree/a"
    (tree / "b").rmdir()
    (tree / "c").rmdir()
    (tree / "c").symlink_to("d")
    (tree / "e").unlink()
    (tree / "f").unlink()
    (tree / "f").mkdir()
    (tree / "g").unlink()
    os.mkfifo(tree / "g")
    kinds = {item.path: item.kind if isinstance(item, FileProblem) else None for item in walk}
    assert kinds == {
        "tree/b": ProblemKind.VANISHED,
        "tree/c": ProblemKind.VANISHED,
        "tree/e": ProblemKind.VANISHED,
        "tree/f": ProblemKind.CHANGED,
        "tree/g": ProblemKind.SPECIAL,
        "tree/h": None,
    }


def test_depth_is_no_problem(tree: Path) -> None:
    folder = tree
    for _ in range(900):
        folder = folder / "d"
        folder.mkdir()
    (folder / "f").touch()
    assert paths(DirectorySource("tree")) == ["tree/" + "d/" * 900 + "f"]


# ---- between listing, opening and reading ----


def replace_by_symlink(file: Path) -> None:
    file.rename(file.with_name("moved"))
    file.symlink_to("moved")


def replace_by_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def replace_by_socket(file: Path) -> None:
    file.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(file))


def replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def remove_with_folder(file: Path) -> None:
    file.unlink()
    file.parent.rmdir()
    file.parent.touch()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (Path.unlink, "vanished"),
        (remove_with_folder, "vanished"),
        (replace_by_symlink, "changed"),
        (replace_by_fifo, "changed"),
        (replace_by_socket, "changed"),
        (replace_by_folder, "changed"),
    ],
)
def test_replaced_file_is_not_opened(tree: Path, change: Callable[[Path], None], problem: str) -> None:
    (tree / "f").write_bytes(b"data")
    source = DirectorySource("tree")
    file = only_file(source)
    source.open(file).__exit__(None, None, None)  # from now on, the folder of the source is open
    before = len(os.listdir("/proc/self/fd"))
    change(tree / "f")
    with pytest.raises(SourceFailed) as caught:
        source.open(file)
    assert caught.value.problem == problem
    assert caught.value.path == "tree/f"
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_may_not_be_read_fails(tree: Path) -> None:
    (tree / "f").write_bytes(b"data")
    (tree / "f").chmod(0)
    with as_normal_user():
        source = DirectorySource("tree")
        with pytest.raises(SourceFailed, match="Permission denied") as caught:
            source.open(only_file(source))
    assert caught.value.problem == "unreadable"


def overwrite_in_place(file: Path) -> None:
    """Overwrite a file and keep size and modification time. Only the time of the last status change differs."""
    times = file.stat()
    with file.open("r+b") as opened:
        opened.write(b"X")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


CLOCK_TICK_SECONDS = 0.02
"""Before Linux 6.13, times of files are as coarse as the kernel's tick: changes must be this far apart."""


def grow(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"more")


def replace_by_rename(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(b"other")
    other.rename(file)


@pytest.mark.parametrize("size_bytes", [0, 10, 3 << 20])
@pytest.mark.parametrize("by_blocks", [False, True])
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (grow, "changed"),
        (overwrite_in_place, "changed"),
        (Path.unlink, "vanished"),
        (replace_by_rename, "vanished"),
    ],
)
def test_a_file_that_changes_once_open_fails(
    tree: Path, change: Callable[[Path], None], problem: str, by_blocks: bool, size_bytes: int
) -> None:
    (tree / "f").write_bytes(bytes(size_bytes))
    source = DirectorySource("tree")
    with source.open(only_file(source)) as opened:
        time.sleep(CLOCK_TICK_SECONDS)
        change(tree / "f")
        with pytest.raises(SourceFailed) as caught:
            list(opened.blocks()) if by_blocks else opened.read()
    assert caught.value.problem == problem
    assert caught.value.path == "tree/f"


@pytest.mark.parametrize("change", [grow, overwrite_in_place, lambda file: os.truncate(file, 2 << 20)])
def test_a_change_between_two_blocks_is_noticed(tree: Path, change: Callable[[Path], None]) -> None:
    (tree / "f").write_bytes(bytes(3 << 20))
    source = DirectorySource("tree")
    with source.open(only_file(source)) as opened:
        blocks = opened.blocks()
        assert next(blocks) == bytes(1 << 20)
        time.sleep(CLOCK_TICK_SECONDS)
        change(tree / "f")
        with pytest.raises(SourceFailed, match="changed while it was read"):
            list(blocks)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_file_with_more_bytes_than_its_size_is_refused() -> None:
    source = DirectorySource("/proc/self/status")
    for read in ("read", "blocks"):
        with source.open(only_file(source)) as opened:
            assert opened.size_bytes == 0
            with pytest.raises(SourceFailed, match="changed while it was read"):
                list(getattr(opened, read)())


def test_short_reads_are_continued(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * 10
    (tree / "f").write_bytes(data)
    source = DirectorySource("tree")
    file = only_file(source)
    read = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, count: read(descriptor, min(count, 100)))
    with source.open(file) as opened:
        assert opened.read() == data
    with source.open(file) as opened:
        assert b"".join(opened.blocks()) == data


def test_closing_gives_the_descriptor_back(tree: Path) -> None:
    (tree / "f").touch()
    source = DirectorySource("tree")
    file = only_file(source)
    source.open(file).__exit__(None, None, None)  # from now on, the folder of the source is open
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with source.open(file) as opened:
            opened.read()
    assert len(os.listdir("/proc/self/fd")) == before

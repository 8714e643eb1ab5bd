"""--files-from: names from a file or a stream."""

import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest

from cafcat.errors import InvalidInput, NotFound, SourceFailed
from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.sources.kind import SourceContext
from cafcat.sources.lists.name_list import NameListSource
from tests.worlds.listeners import Heard


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files a, d/b and d/c in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("d").mkdir()
    for path in ("a", "d/c", "d/b"):
        Path(path).write_text(path)
    return tmp_path


def listed(data: bytes, **options: object) -> list[str]:
    """Return the paths of files, and "path: kind" for problems, in order."""
    items = NameListSource(BytesIO(data), **options).files()  # type: ignore[arg-type]
    return [f"{item.path}: {item.kind}" if isinstance(item, FileProblem) else item.path for item in items]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (b"", []),
        (b"\n\n", []),
        (b"a\n", ["a"]),
        (b"a", ["a"]),
        (b"d/c\n\na\nd/b", ["d/c", "a", "d/b"]),
        (b"d\n", ["d/b", "d/c"]),
        (b"d/\n./a\n", ["d/b", "d/c", "a"]),
        (b".\n", ["a", "d/b", "d/c"]),
        (b"nothing\na\n", ["nothing: vanished", "a"]),
        (b"d/../a\n", ["a"]),
        (b"a/below\na\n", ["a/below: vanished", "a"]),
        (b"x\0y\na\n", ["x\\x00y: name", "a"]),
        (b"caf\xe9\na\n", ["caf\\xe9: vanished", "a"]),
        (b"a \n", ["a : vanished"]),
        (b"n" * 5000 + b"\na\n", ["n" * 5000 + ": name", "a"]),
        (b"d\nd/b\n", ["d/b", "d/c", "d/b"]),
    ],
)
def test_each_line_is_a_file_or_folder(lines: bytes, expected: list[str]) -> None:
    assert listed(lines) == expected


def test_file_urls_are_local_names_percent_encoded(tree: Path) -> None:
    for name in ("a b", "caf\udce9", "100%", "a?b"):
        Path(name).touch()
    below = str(tree).lstrip("/")
    lines = [f"file://{tree}/a%20b", f"FILE://localhost{tree}/d", f"file://{tree}/caf%E9", f"file://{tree}/100%"]
    lines += [f"file://{tree}/a?b", f"file://{tree}/%00", "file://elsewhere/a", "file:a"]
    files = ["a b", "d/b", "d/c", "caf\\xe9: name", "100%", "a?b"]
    expected = [f"{below}/{file}" for file in files] + [f"{tree}/\\x00: name", "file://elsewhere/a: name"]
    assert listed("\n".join(lines).encode(), context=SourceContext()) == [*expected, "file:a: vanished"]


def test_local_names_may_look_like_urls() -> None:
    for folder in ("s3:", "http:/host"):
        Path(folder).mkdir(parents=True)
        Path(folder, "key").touch()
    assert listed(b"./s3://key\n./http://host/key\ns3:/key") == ["s3:/key", "http:/host/key", "s3:/key"]


def test_names_can_be_separated_by_nul() -> None:
    Path("new\nline").touch()
    assert listed(b"new\nline\0\0d\0a", null_separated=True) == ["new\nline", "d/b", "d/c", "a"]


def test_the_prefix_comes_first() -> None:
    assert listed(b"a\n.\n", context=SourceContext("p/q")) == ["p/q/a", "p/q/a", "p/q/d/b", "p/q/d/c"]


def test_symlinks_are_skipped_unless_followed() -> None:
    Path("to file").symlink_to("a")
    Path("to folder").symlink_to("d")
    lines = b"to file\nto folder\n"
    assert listed(lines) == ["to file: symlink", "to folder: symlink"]
    assert listed(lines, follow_symlinks=True) == ["to file", "to folder/b", "to folder/c"]


def test_files_of_the_list_can_be_opened() -> None:
    source = NameListSource(BytesIO(b"a\nd\n"))
    files = [item for item in source.files() if isinstance(item, SourceFile)]
    contents = []
    for file in files:
        with source.open(file) as opened:
            contents.append(opened.read().decode())
    assert contents == ["a", "d/b", "d/c"]
    Path("a").unlink()
    Path("a").symlink_to("d/b")
    with pytest.raises(SourceFailed, match="is now a symbolic link"):
        source.open(files[0])


def test_files_of_the_list_can_be_opened_one_after_the_other() -> None:
    source = NameListSource(BytesIO(b"a\nd\n"))
    files = [item for item in source.files() if isinstance(item, SourceFile)]
    results = source.open_each(iter(files))
    with next(results) as opened:  # type: ignore[union-attr]
        assert opened.read() == b"a"
    Path("d/b").unlink()
    failed, last = results
    assert isinstance(failed, SourceFailed)
    assert (failed.path, failed.problem) == ("d/b", "vanished")
    with last as opened:  # type: ignore[union-attr]
        assert opened.read() == b"d/c"


def test_each_kind_of_removed_beginning_is_warned_of_once(tree: Path) -> None:
    heard = Heard()
    lines = [f"{tree}/a", f"{tree}/d/b", "d/../a", "nothing/../a", "a"]
    source = NameListSource(BytesIO("\n".join(lines).encode()), progress=heard)
    assert len(list(source.files())) == 5
    assert heard.warnings == [f"Removing leading `{beginning}' from member names" for beginning in ("/", "d/../")]


def test_a_list_can_be_a_file_and_is_then_read_each_time() -> None:
    Path("list").write_bytes(b"a\n")
    source = NameListSource("list")
    assert source.name == "--files-from list"
    for _ in range(2):
        assert [item.path for item in source.files()] == ["a"]


def test_a_list_may_come_from_standard_input() -> None:
    script = (
        "from cafcat.sources.lists.name_list import NameListSource; "
        "source = NameListSource('-', null_separated=True); "
        "print(source.name, *(item.path for item in source.files()), sep='|')"
    )
    run = subprocess.run([sys.executable, "-c", script], input=b"d\0a\0", capture_output=True, check=True)
    assert run.stdout.decode() == "--files-from -|d/b|d/c|a\n"


def test_list_that_cannot_be_opened_is_refused_at_once() -> None:
    with pytest.raises(NotFound):
        NameListSource("nothing")
    with pytest.raises(InvalidInput):
        NameListSource("d")
    with pytest.raises(InvalidInput):
        NameListSource("l\0st")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc")
def test_list_with_a_read_error_fails() -> None:
    """The first page of a process is not mapped: reading it is an I/O error."""
    source = NameListSource("/proc/self/mem")
    with pytest.raises(SourceFailed, match="Input/output error") as caught:
        list(source.files())
    assert caught.value.problem == "unreadable"


def test_endless_name_is_not_buffered() -> None:
    class Endless(BytesIO):
        taken = 0

        def read1(self, size: int | None = -1) -> bytes:
            assert size is not None
            assert size > 0
            self.taken += size
            return b"x" * size

    stream = Endless()
    with pytest.raises(InvalidInput, match=r"longer than 65,536 bytes.*-0"):
        list(NameListSource(stream).files())
    assert stream.taken < 1 << 20


def test_files_are_listed_before_the_list_is_read_to_its_end() -> None:
    """A list may be larger than memory."""

    class Counting(BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            counts.append(size or 0)
            return super().read1(size)

    counts: list[int] = []
    items = NameListSource(Counting(b"a\n" * 1_000_000)).files()
    next(items)
    assert len(counts) == 1
    assert ProblemKind.VANISHED not in {getattr(next(items), "kind", None) for _ in range(100)}
    assert len(counts) == 1

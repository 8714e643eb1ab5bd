"""The conformance suite for sources. Inherit SourceSuite, override its two fixtures, and run pytest."""

from collections.abc import Callable
from typing import Protocol

import pytest

from cafcat.errors import SourceFailed
from cafcat.model import FileProblem, SourceFile
from cafcat.sources.base import Source

__all__ = ["RawFiles", "SourceSuite"]

MIB = 1 << 20


class RawFiles(Protocol):
    """Changes the files that a source reads, without using the source. Paths are those that the source yields."""

    def write(self, path: str, data: bytes) -> None:
        """Create a file, or replace its content. A replaced file may keep its modification time."""

    def remove(self, path: str) -> None:
        """Remove the file with this path."""


def found(source: Source) -> dict[str, SourceFile]:
    """Return all files of a source by path. A path that occurs twice, or a problem, fails the test."""
    files: dict[str, SourceFile] = {}
    for item in source.files():
        assert isinstance(item, SourceFile), item
        assert item.path not in files, f"{item.path!r} came twice"
        files[item.path] = item
    return files


class SourceSuite:
    """Tests that each source must pass. Inherit this class; override the fixtures `open_source` and `raw`."""

    ordered = True
    """True if files come in ascending byte order of their paths. Override it with False for any other order."""

    @pytest.fixture
    def open_source(self) -> Callable[[], Source]:
        """Return a function that opens the source: each call finds all files that `raw` has written before."""
        raise NotImplementedError

    @pytest.fixture
    def raw(self) -> RawFiles:
        """Return an object that changes the files of the source without using the source."""
        raise NotImplementedError

    def test_every_file_comes_once_with_its_content(self, open_source: Callable[[], Source], raw: RawFiles) -> None:
        """`Source.files` yields each file once. `Source.open` gives its content, size and time."""
        expected = {f"folder{n % 7}/sub{n % 3}/file{n}": b"%d" % n * n for n in range(100)}
        expected |= {"top": b"", "folder1.txt": b"x", "folder1/sub1.txt": b"y"}
        for path, data in expected.items():
            raw.write(path, data)
        source = open_source()
        files = found(source)
        assert files.keys() == expected.keys()
        for path, data in expected.items():
            with source.open(files[path]) as opened:
                assert opened.size_bytes == len(data) == files[path].size_bytes
                assert opened.modified_ns == files[path].modified_ns
                assert opened.read() == data

    def test_files_come_in_byte_order(self, open_source: Callable[[], Source], raw: RawFiles) -> None:
        """`Source.files` yields paths in byte order, unless the suite's `ordered` is False."""
        names = [
            "a",
            "a.txt",
            "a-b/x",
            "a0",
            "B",
            "b/a",
            "b/a.d/x",
            "b/a0",
            "b.c",
            "é/x",
            "é.txt",
            "日本",
            "😀",
        ]
        names += ["c/a", "c/a!/z", "c/a~"]
        for path in names:
            raw.write(path, b"")
        paths = [item.path for item in open_source().files()]
        expected = sorted(names, key=str.encode)
        assert (paths if self.ordered else sorted(paths, key=str.encode)) == expected

    @pytest.mark.parametrize("size_bytes", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB + 5])
    def test_blocks_are_the_content_in_pieces_of_at_most_1_mib(
        self, open_source: Callable[[], Source], raw: RawFiles, size_bytes: int
    ) -> None:
        """`OpenFile.blocks` yields the content of a file in blocks of at most 1 MiB."""
        data = (bytes(range(253)) * (size_bytes // 253 + 1))[:size_bytes]
        raw.write("file", data)
        source = open_source()
        with source.open(found(source)["file"]) as opened:
            blocks = list(opened.blocks())
        assert b"".join(blocks) == data
        assert max(map(len, blocks), default=0) <= MIB

    @pytest.mark.parametrize(
        "path",
        [" ", "with space", "new\nline", "tab\t", "ü/日本", "'\"", "%41", "-rf", "a\\b", "\x01", "~", "..."],
    )
    def test_odd_but_valid_names_are_taken_as_they_are(
        self, open_source: Callable[[], Source], raw: RawFiles, path: str
    ) -> None:
        """The source neither changes nor refuses file names with spaces, line breaks, quotes and the like."""
        raw.write(path, b"data")
        source = open_source()
        with source.open(found(source)[path]) as opened:
            assert opened.read() == b"data"

    def test_names_that_the_catalog_cannot_take_are_problems(
        self, open_source: Callable[[], Source], raw: RawFiles
    ) -> None:
        """The source yields a file with a path of 2,048 bytes. A longer path is a problem of the kind `name`."""
        longest = "/".join(["d" * 200] * 10) + "/" + "f" * (2048 - 2010)
        raw.write(longest, b"fits")
        raw.write(longest + "f", b"does not")
        items = list(open_source().files())
        assert [item.path for item in items if isinstance(item, SourceFile)] == [longest]
        problems = [item for item in items if isinstance(item, FileProblem)]
        assert [(problem.path, problem.kind.value) for problem in problems] == [(longest + "f", "name")]

    def test_a_file_that_changed_since_it_was_listed_is_taken_as_it_is_now(
        self, open_source: Callable[[], Source], raw: RawFiles
    ) -> None:
        """A file that changes between `Source.files` and `Source.open` is opened with its new content."""
        raw.write("file", b"old")
        source = open_source()
        listed = found(source)["file"]
        raw.write("file", b"new and longer")
        with source.open(listed) as opened:
            assert opened.size_bytes == 14
            assert opened.read() == b"new and longer"

    @pytest.mark.parametrize("change", [b"", b"shorter", b"longer " * MIB])
    @pytest.mark.parametrize("by_blocks", [False, True])
    def test_a_file_that_changes_while_open_fails(
        self, open_source: Callable[[], Source], raw: RawFiles, change: bytes, by_blocks: bool
    ) -> None:
        """Reading a file that changes after `Source.open` raises SourceFailed with the problem `changed`."""
        raw.write("file", b"content " * MIB)
        source = open_source()
        with source.open(found(source)["file"]) as opened:
            raw.write("file", change)
            with pytest.raises(SourceFailed) as caught:
                list(opened.blocks()) if by_blocks else opened.read()
        assert caught.value.problem == "changed"
        assert caught.value.path == "file"

    def test_a_file_that_vanished_fails_and_others_go_on(
        self, open_source: Callable[[], Source], raw: RawFiles
    ) -> None:
        """Opening a removed file raises SourceFailed with the problem `vanished`. Other files can be opened."""
        raw.write("gone", b"1")
        raw.write("here", b"2")
        source = open_source()
        files = found(source)
        raw.remove("gone")
        with pytest.raises(SourceFailed) as caught:
            source.open(files["gone"])
        assert caught.value.problem == "vanished"
        assert caught.value.path == "gone"
        with source.open(files["here"]) as opened:
            assert opened.read() == b"2"

    def test_the_source_has_a_name(self, open_source: Callable[[], Source], raw: RawFiles) -> None:
        """The name of the source is not empty."""
        raw.write("file", b"")
        assert open_source().name

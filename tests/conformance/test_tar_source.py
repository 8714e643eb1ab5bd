"""Both ways of reading a tar archive pass the suite of cafcat.testing.sources, as far as an archive can."""

import io
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cafcat.errors import SourceFailed
from cafcat.model import SourceFile
from cafcat.sources.base import BatchingSource, Source
from cafcat.sources.tar.file import TarFileSource
from cafcat.sources.tar.stream import TarStreamSource
from cafcat.testing.sources import MIB, RawFiles, SourceSuite, found


class ArchiveBeside:
    """An archive that is written again after each change, as a backup program does."""

    def __init__(self, path: Path, mode: str) -> None:
        self.path = path
        self._mode = mode
        self._files: dict[str, bytes] = {}

    def write(self, path: str, data: bytes) -> None:
        self._files[path] = data
        self._save()

    def remove(self, path: str) -> None:
        del self._files[path]
        self._save()

    def _save(self) -> None:
        with tarfile.open(self.path, self._mode) as archive:  # type: ignore[call-overload]
            for number, (path, data) in enumerate(self._files.items()):
                member = tarfile.TarInfo(path)
                member.size, member.mtime = len(data), 1_700_000_000 + number
                archive.addfile(member, io.BytesIO(data))


class TestTarFileSource(SourceSuite):
    ordered = False

    @pytest.fixture
    def raw(self, tmp_path: Path) -> ArchiveBeside:
        return ArchiveBeside(tmp_path / "files.tar", "w")

    @pytest.fixture
    def open_source(self, raw: ArchiveBeside) -> Callable[[], Source]:
        return lambda: TarFileSource(str(raw.path))

    def test_a_file_that_changed_since_it_was_listed_is_taken_as_it_is_now(
        self, open_source: Callable[[], Source], raw: RawFiles
    ) -> None:
        """A changed archive has its members at other positions: all of them are refused."""
        raw.write("file", b"old")
        source = open_source()
        listed = found(source)["file"]
        raw.write("file", b"new and longer")
        with pytest.raises(SourceFailed, match="the archive has changed") as caught:
            source.open(listed)
        assert (caught.value.problem, caught.value.path) == ("changed", "file")

    def test_a_file_that_vanished_fails_and_others_go_on(
        self, open_source: Callable[[], Source], raw: RawFiles
    ) -> None:
        """A member vanishes only by a change of the archive, after which all members are refused."""
        raw.write("gone", b"1")
        raw.write("here", b"2")
        source = open_source()
        files = found(source)
        raw.remove("gone")
        for path in ("gone", "here"):
            with pytest.raises(SourceFailed) as caught:
                source.open(files[path])
            assert (caught.value.problem, caught.value.path) == ("changed", path)


def contents_as_they_come(source: Source) -> dict[str, tuple[SourceFile, list[bytes]]]:
    """Open each file before the next one is listed, and return its blocks."""
    contents = {}
    for item in source.files():
        assert isinstance(item, SourceFile), item
        assert item.path not in contents, f"{item.path!r} came twice"
        with source.open(item) as opened:
            assert (opened.size_bytes, opened.modified_ns) == (item.size_bytes, item.modified_ns)
            contents[item.path] = item, list(opened.blocks())
    return contents


class TestTarStreamSource(SourceSuite):
    """Tests of the suite that list all files before they open one are replaced: a stream is over by then."""

    ordered = False

    @pytest.fixture
    def raw(self, tmp_path: Path) -> ArchiveBeside:
        return ArchiveBeside(tmp_path / "files.tar.gz", "w:gz")

    @pytest.fixture
    def open_source(self, raw: ArchiveBeside) -> Callable[[], Source]:
        return lambda: TarStreamSource(str(raw.path))

    def test_it_gives_its_files_in_batches(self, open_source: Callable[[], Source], raw: RawFiles) -> None:
        raw.write("file", b"data")
        source = open_source()
        assert isinstance(source, BatchingSource)
        batches = [[item.path for item in batch] for batch in source.batches()]
        assert batches == [["file"]]

    def test_every_file_comes_once_with_its_content(self, open_source: Callable[[], Source], raw: RawFiles) -> None:
        """Files are opened while they are listed, and read with read()."""
        expected = {f"folder{n % 7}/file{n}": b"%d" % n * n for n in range(20)} | {"top": b""}
        for path, data in expected.items():
            raw.write(path, data)
        source = open_source()
        taken = {}
        for item in source.files():
            assert isinstance(item, SourceFile)
            with source.open(item) as opened:
                assert opened.size_bytes == item.size_bytes
                assert opened.modified_ns == item.modified_ns
                taken[item.path] = opened.read()
        assert taken == expected

    @pytest.mark.parametrize("size_bytes", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB + 5])
    def test_blocks_are_the_content_in_pieces_of_at_most_1_mib(
        self, open_source: Callable[[], Source], raw: RawFiles, size_bytes: int
    ) -> None:
        """The file is opened while it is listed."""
        data = (bytes(range(253)) * (size_bytes // 253 + 1))[:size_bytes]
        raw.write("file", data)
        _, blocks = contents_as_they_come(open_source())["file"]
        assert b"".join(blocks) == data
        assert max(map(len, blocks), default=0) <= MIB

    @pytest.mark.parametrize(
        "path",
        [" ", "with space", "new\nline", "tab\t", "ü/日本", "'\"", "%41", "-rf", "a\\b", "\x01", "~", "..."],
    )
    def test_odd_but_valid_names_are_taken_as_they_are(
        self, open_source: Callable[[], Source], raw: RawFiles, path: str
    ) -> None:
        """The file is opened while it is listed."""
        raw.write(path, b"data")
        assert contents_as_they_come(open_source())[path][1] == [b"data"]

    def test_a_file_that_changed_since_it_was_listed_is_taken_as_it_is_now(
        self, open_source: Callable[[], Source], raw: RawFiles
    ) -> None:
        """The listed file was read already: its old content is returned, and the listing ends with the change."""
        raw.write("file", b"old")
        source = open_source()
        items = source.files()
        listed = next(items)
        assert isinstance(listed, SourceFile)
        raw.write("file", b"new and longer")
        with source.open(listed) as opened:
            assert opened.read() == b"old"

    @pytest.mark.parametrize("change", [b"", b"shorter", b"longer " * MIB])
    @pytest.mark.parametrize("by_blocks", [False, True])
    def test_a_file_that_changes_while_open_fails(
        self, open_source: Callable[[], Source], raw: RawFiles, change: bytes, by_blocks: bool
    ) -> None:
        """The file is opened while it is listed. Then the listing ends with the same problem."""
        raw.write("file", random.Random(1).randbytes(4 * MIB))
        source = open_source()
        items = source.files()
        listed = next(items)
        assert isinstance(listed, SourceFile)
        with source.open(listed) as opened:
            raw.write("file", change)
            with pytest.raises(SourceFailed) as caught:
                list(opened.blocks()) if by_blocks else opened.read()
        assert (caught.value.problem, caught.value.path) == ("changed", "file")
        assert [(item.path, getattr(item, "kind", None)) for item in items] == [(source.name, "changed")]

    def test_a_file_that_vanished_fails_and_others_go_on(
        self, open_source: Callable[[], Source], raw: RawFiles
    ) -> None:
        """A member cannot vanish. A member whose batch is over cannot be opened any more."""
        raw.write("gone", b"1")
        raw.write("large", bytes(MIB + 1))
        raw.write("here", b"2")
        source = open_source()
        files = {}
        for item in source.files():
            assert isinstance(item, SourceFile)
            files[item.path] = item
            if item.path == "here":
                with pytest.raises(SourceFailed, match="cannot be read any more") as caught:
                    source.open(files["gone"])
                assert caught.value.path == "gone"
                with source.open(item) as opened:
                    assert opened.read() == b"2"

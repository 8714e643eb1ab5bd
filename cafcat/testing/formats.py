"""The conformance suite for archive formats. Inherit FormatSuite, override its fixture `format`, and run pytest."""

from collections.abc import Iterable

import pytest

from cafcat.errors import CafcatError, Corrupt, InvalidInput, Refused, StoreFailed
from cafcat.formats.base import FinishedArchive, Format, Writer
from cafcat.model import MAX_PATH_BYTES, Entry, NewFile
from cafcat.support.checksums import crc32c

__all__ = ["BytesArchive", "FailingSink", "FormatSuite", "ListSink", "pack"]

Files = Iterable[tuple[str, bytes, int | None]]

CONTENTS = [b"", b"x", b"0123456789" * 10, bytes(range(256)) * 300, b"", b"\0" * 5000]
ODD_NAMES = ["a", "dir/a", "dir.b", "/abs", "../up", "./dot", "a//b", "dir/", " ", "10", "9", "-rf", "%41"]
ODD_NAMES += ["new\nline", "tab\t", "\x01\x1f\x7f", 'quote"back\\slash', "a<b>&c", "}},", '":{', "\\u0041"]
ODD_NAMES += ["é", "e\u0301", "日本/😀.bin", "ls\u2028ps\u2029", "\ufeffbom", "\u202eright", "x" * MAX_PATH_BYTES]
BAD_NAMES = ["", "nul\0name", "\udcff", "high\ud800", "x" * (MAX_PATH_BYTES + 1), "é" * (MAX_PATH_BYTES // 2 + 1)]
TIMES = [None, 0, 1, -1, 1_700_000_000_123_456_789, -(1 << 63), (1 << 63) - 1]


class BytesArchive:
    """An archive in memory, as a RandomReader for tests.

    Attributes:
        name: Name of the archive in messages.
        size_bytes: Size of the archive in bytes.
        reads: The spans that were read, in order.
    """

    def __init__(self, data: bytes, name: str = "test-archive") -> None:
        self.name = name
        self.size_bytes = len(data)
        self.reads: list[tuple[int, int]] = []
        self._data = data

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes of `[start_byte, end_byte)`, and add the span to `reads`.

        Raises:
            Corrupt: The archive ends before `end_byte`.
        """
        assert 0 <= start_byte <= end_byte, f"the span [{start_byte}, {end_byte}) is negative or reversed"
        if end_byte > self.size_bytes:
            raise Corrupt(f"the object ends at byte {self.size_bytes}", chunk=self.name, byte=self.size_bytes)
        self.reads.append((start_byte, end_byte))
        return self._data[start_byte:end_byte]


class ListSink:
    """A HeadSink for tests that stores all written blocks in memory, in the list `blocks`."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.blocks.append(bytes(data))

    def rewrite_head(self, data: bytes) -> None:
        assert len(data) <= len(self.blocks[0]), "only bytes of the first write can be rewritten"
        self.blocks[0] = data + self.blocks[0][len(data) :]

    @property
    def data(self) -> bytes:
        """All bytes that were written, with the rewritten head."""
        return b"".join(self.blocks)


class FailingSink(ListSink):
    """A HeadSink for tests that fails once, like a full disk on which space becomes free later.

    It accepts writes while they fit into `room_bytes` bytes. The first write that does not fit is dropped, and
    raises StoreFailed. All later writes are accepted. So a writer that continues after the error leaves a gap.

    Attributes:
        room_bytes: Number of bytes that are accepted before the failure.
        failed: True after the failure.
    """

    def __init__(self, room_bytes: int) -> None:
        super().__init__()
        self.room_bytes = room_bytes
        self.failed = False

    def write(self, data: bytes) -> None:
        if not self.failed and len(self.data) + len(data) > self.room_bytes:
            self.failed = True
            raise StoreFailed("no space left on device")
        super().write(data)


def pack(archive_format: Format, files: Files) -> tuple[bytes, list[Entry], FinishedArchive]:
    """Write an archive in memory.

    Args:
        archive_format: The format of the archive.
        files: Path, content, and modification time in nanoseconds since 1970 UTC (or None) of each file.

    Returns:
        The bytes of the archive, its entries in the order of the files, and its sizes as `Writer.finalize` returns
        them.
    """
    sink = ListSink()
    writer = archive_format.writer(sink)
    entries = [writer.add(path, content, modified_ns) for path, content, modified_ns in files]
    finished = writer.finalize()
    return sink.data, entries, finished


class FormatSuite:
    """Tests that each archive format with a writer must pass. Inherit this class; override the fixture `format`."""

    @pytest.fixture
    def format(self) -> Format:
        """Return the format to test."""
        raise NotImplementedError

    def check(self, archive_format: Format, data: bytes, expected: list[Entry], contents: dict[str, bytes]) -> None:
        """Check that an archive has exactly the expected entries and the given contents.

        Also check that the spans of the entries and of the index lie within the archive.

        Args:
            archive_format: The format to read the archive with.
            data: The bytes of the archive.
            expected: The entries, in any order.
            contents: The content of some of the entries by path.
        """
        reader = archive_format.reader(BytesArchive(data))
        found = {entry.path: entry for entry in reader.entries()}
        assert found == {entry.path: entry for entry in expected}
        index_start, index_end = reader.index_span
        assert 0 <= index_start <= index_end <= len(data)
        for path, content in contents.items():
            entry = found[path]
            assert 0 <= entry.start_byte <= entry.end_byte <= len(data)
            assert entry.crc32c in (None, crc32c(content))
            assert entry.size_bytes == len(content)
            assert b"".join(reader.open(entry)) == content
            span = data[entry.start_byte : entry.end_byte]
            if entry.decoding is None:
                assert span == content
                assert entry.end_byte <= index_start
            else:
                assert b"".join(archive_format.decode(iter([span[:7], span[7:]]), entry)) == content

    def test_files_are_added_together_as_one_by_one(self, format: Format) -> None:
        files = [(f"f{n}", b"x" * n, TIMES[n % len(TIMES)]) for n in range(30)]
        expected = pack(format, files)
        sink = ListSink()
        writer = format.writer(sink)
        new = [NewFile(*file) for file in files]
        entries = [*writer.add_all(new[:20], 1 << 40), *writer.add_all(new[20:], 1 << 40), *writer.add_all([], 0)]
        finished = writer.finalize()
        assert (sink.data, entries, finished) == expected

    @pytest.mark.parametrize("max_bytes", [0, 1, 300, 500, 1000, 2000])
    def test_so_many_files_are_added_as_fit(self, format: Format, max_bytes: int) -> None:
        new = [NewFile(f"f{n}", b"x" * 40, None) for n in range(30)]
        sink = ListSink()
        writer = format.writer(sink)
        added = len(writer.add_all(new, max_bytes))
        whole, _, _ = pack(format, [(file.path, file.content, file.modified_ns) for file in new[: added + 1]])
        writer.finalize()
        assert added == 0 or len(sink.data) <= max_bytes
        assert len(whole) > max_bytes or added == len(new)

    def test_files_of_which_one_is_refused_are_not_added(self, format: Format) -> None:
        sink = ListSink()
        writer = format.writer(sink)
        with pytest.raises(Refused):
            writer.add_all([NewFile("good", b"data", None), NewFile("b\0d", b"data", None)], 1 << 40)
        assert b"data" not in sink.data
        assert [entry.path for entry in writer.add_all([NewFile("good", b"data", None)], 1 << 40)] == ["good"]

    def test_an_empty_archive(self, format: Format) -> None:
        data, _, finished = pack(format, [])
        assert list(format.reader(BytesArchive(data)).entries()) == []
        assert finished.file_count == 0
        assert finished.size_bytes == len(data)

    def test_files_come_back(self, format: Format) -> None:
        files = [(f"folder{n % 2}/file{n}", content, 10**18 + n) for n, content in enumerate(CONTENTS)]
        data, entries, finished = pack(format, files)
        assert [entry.path for entry in entries] == [path for path, _, _ in files]
        self.check(format, data, entries, {path: content for path, content, _ in files})
        assert finished.size_bytes == len(data)
        assert finished.file_count == len(files)
        span = (finished.index_start_byte, finished.index_end_byte)
        assert span == format.reader(BytesArchive(data)).index_span

    def test_a_single_empty_file(self, format: Format) -> None:
        data, entries, _ = pack(format, [("empty", b"", None)])
        self.check(format, data, entries, {"empty": b""})
        assert entries[0].crc32c == 0

    def test_odd_names_come_back(self, format: Format) -> None:
        files = [(path, path.encode() * (n % 3), n) for n, path in enumerate(ODD_NAMES)]
        data, entries, _ = pack(format, files)
        self.check(format, data, entries, {path: content for path, content, _ in files})

    def test_times_come_back_to_the_nanosecond(self, format: Format) -> None:
        data, entries, _ = pack(format, [(f"file{n}", b"x", time) for n, time in enumerate(TIMES)])
        assert [entry.modified_ns for entry in entries] == TIMES
        self.check(format, data, entries, {})

    def test_many_files_come_back_in_the_order_of_the_index(self, format: Format) -> None:
        files = [(f"folder{n % 17}/file{n * 7919 % 20_000}", b"%d" % n, n) for n in range(20_000)]
        data, entries, _ = pack(format, files)
        self.check(format, data, entries, {path: content for path, content, _ in files})
        reader = format.reader(BytesArchive(data))
        assert list(reader.entries()) == list(reader.entries())

    @pytest.mark.parametrize("content", CONTENTS)
    @pytest.mark.parametrize("block_bytes", [1, 1000, 1 << 20])
    def test_blocks_make_the_same_archive_as_a_whole(
        self, format: Format, content: bytes, block_bytes: int
    ) -> None:
        whole, entries, _ = pack(format, [("before", b"b", 1), ("file", content, 2), ("after", b"a", 3)])
        sink = ListSink()
        writer = format.writer(sink)
        writer.add("before", b"b", 1)
        entry = writer.open("file", 2)
        for position in range(0, len(content), block_bytes):
            entry.write(content[position : position + block_bytes])
        assert entry.close() == entries[1]
        writer.add("after", b"a", 3)
        writer.finalize()
        assert sink.data == whole

    def test_an_abandoned_file_costs_only_itself(self, format: Format) -> None:
        sink = ListSink()
        writer = format.writer(sink)
        first = writer.add("first", b"1111", 1)
        given_up = writer.open("given up", 2)
        given_up.write(b"never seen")
        given_up.abandon()
        assert writer.file_count == 1
        unwritten = writer.open("nothing written", 2)
        unwritten.abandon()
        again = writer.open("given up", 3)
        again.write(b"second try")
        entries = [first, again.close(), writer.add("last", b"22", 4)]
        finished = writer.finalize()
        assert finished.file_count == 3
        contents = {"first": b"1111", "given up": b"second try", "last": b"22"}
        self.check(format, sink.data, entries, contents)

    def test_one_file_at_a_time(self, format: Format) -> None:
        sink = ListSink()
        writer = format.writer(sink)
        entry = writer.open("open", None)
        for call in (lambda: writer.add("b", b"", None), lambda: writer.open("b", None), writer.finalize):
            with pytest.raises(InvalidInput):
                call()
        entry.write(b"data")
        closed = entry.close()
        for late in (lambda: entry.write(b"late"), entry.close, entry.abandon):
            with pytest.raises(InvalidInput):
                late()
        writer.finalize()
        self.check(format, sink.data, [closed], {"open": b"data"})

    @pytest.mark.parametrize("path", BAD_NAMES)
    def test_names_that_the_catalog_cannot_take_are_refused_by_name(self, format: Format, path: str) -> None:
        sink = ListSink()
        writer = format.writer(sink)
        good = writer.add("good", b"data", None)
        written = sink.data
        with pytest.raises(Refused) as caught:
            writer.add(path, b"not written", None)
        assert caught.value.path == path
        with pytest.raises(Refused):
            writer.open(path, None)
        assert sink.data == written
        other = writer.add("other", b"more", None)
        writer.finalize()
        self.check(format, sink.data, [good, other], {"good": b"data", "other": b"more"})

    def test_the_foretold_size_is_never_less_than_the_truth(self, format: Format) -> None:
        sink = ListSink()
        writer = format.writer(sink)
        for n, path in enumerate(ODD_NAMES):
            content = CONTENTS[n % len(CONTENTS)]
            foretold = writer.size_if_finalized(path, len(content))
            assert foretold >= writer.size_if_finalized()
            assert writer.can_add(path, len(content))
            if n % 2:
                writer.add(path, content, TIMES[n % len(TIMES)])
            else:
                entry = writer.open(path, TIMES[n % len(TIMES)])
                entry.write(content)
                entry.close()
            assert foretold >= writer.size_if_finalized()
        foretold = writer.size_if_finalized()
        writer.finalize()
        assert foretold >= len(sink.data)

    @pytest.mark.parametrize("room_bytes", [0, 5, 12, 49, 50, 55])
    def test_after_an_error_of_the_sink_the_writer_refuses_everything(
        self, format: Format, room_bytes: int
    ) -> None:
        sink = FailingSink(room_bytes)
        writer = format.writer(sink)
        with pytest.raises(StoreFailed):
            _write_ten_files(writer)
        written = sink.data
        calls = [lambda: writer.add("b", b"", None), lambda: writer.open("b", None), writer.finalize]
        calls += [writer.size_if_finalized, lambda: writer.can_add("b", 1)]
        for call in calls:
            with pytest.raises(StoreFailed):
                call()
        assert sink.data == written

    def test_an_error_of_the_sink_within_a_file_breaks_the_writer_too(self, format: Format) -> None:
        sink = FailingSink(10)
        writer = format.writer(sink)
        entry = writer.open("file", None)
        entry.write(b"123456")
        with pytest.raises(StoreFailed):
            entry.write(b"789abc" * 1_000_000)
        written = sink.data
        for call in (lambda: entry.write(b"x"), entry.close, lambda: writer.add("b", b"", None), writer.finalize):
            with pytest.raises(StoreFailed):
                call()
        entry.abandon()
        assert sink.data == written

    def test_after_finalize_nothing_can_be_added(self, format: Format) -> None:
        sink = ListSink()
        writer = format.writer(sink)
        writer.add("a", b"1", None)
        writer.finalize()
        written = sink.data
        calls = [lambda: writer.add("b", b"", None), lambda: writer.open("b", None), writer.finalize]
        calls += [writer.size_if_finalized, lambda: writer.can_add("b", 1)]
        for call in calls:
            with pytest.raises(InvalidInput):
                call()
        assert sink.data == written

    def test_an_archive_that_is_cut_is_refused_or_read_within_its_bytes(self, format: Format) -> None:
        data, _, _ = pack(format, [(path, b"data" * 5, 1) for path in ODD_NAMES[:8]])
        for size_bytes in range(len(data)):
            archive = BytesArchive(data[:size_bytes])
            try:
                entries = list(format.reader(archive).entries())
            except CafcatError as error:
                assert "\n" not in str(error)  # noqa: PT017 - what else is raised fails the test
            else:
                assert all(entry.end_byte <= size_bytes for entry in entries)

    def test_errors_name_the_chunk(self, format: Format) -> None:
        data, _, _ = pack(format, [("file", b"data", 1)])
        with pytest.raises(Corrupt) as caught:
            list(format.reader(BytesArchive(data[:-1], name="chunk-7")).entries())
        assert caught.value.chunk == "chunk-7"

    def test_its_own_archives_look_like_it(self, format: Format) -> None:
        for files in ([], [("file", b"", None)], [(f"file{n}", b"data" * n, n) for n in range(100)]):
            data, _, _ = pack(format, files)
            assert format.sniff(data[:64], data[-64:])

    def test_its_name_serves_as_name_and_suffix(self, format: Format) -> None:
        assert format.name
        assert format.name.isascii()
        assert format.suffix.startswith(".")


def _write_ten_files(writer: Writer) -> None:
    for n in range(10):
        writer.add(f"file{n}", b"12345", None)
    writer.finalize()

"""Archives without a catalog: the parts of convert, and conversions of cafcat's own archives."""

import os
import random
import resource
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import cafcat
from cafcat.archives.choosing import format_of_output
from cafcat.archives.making import new_archive
from cafcat.archives.ordering import EntriesByOffset
from cafcat.errors import Conflict, Corrupt, InvalidInput, NotFound, OutputFailed, Refused, Unsupported
from cafcat.formats import registry as formats
from cafcat.formats.base import Format
from cafcat.formats.caf.format import CAF
from cafcat.model import Entry
from cafcat.reading.outputs import Output
from cafcat.support.read_ahead import ReadAhead
from cafcat.testing.formats import BytesArchive, ListSink, pack
from tests.worlds.archives.car_archives import directory, leaf, v1
from tests.worlds.archives.written_formats import WRITTEN
from tests.worlds.listeners import Listener

MIB = 1 << 20
FILES = [
    ("first", b"1", 1_700_000_000_123_456_789),
    ("folder/empty", b"", None),
    ("folder/日本", bytes(range(256)) * 100, -1),
    ("one mebibyte", b"m" * MIB, 0),
    ("large", bytes(range(251)) * 20_000, 5),
    ("folder/last", b"last", 6),
    ("folder/empty too", b"", 7),
]


WRITABLE = [formats.by_name(name) for name in WRITTEN]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def caf(files: list[tuple[str, bytes, int | None]]) -> bytes:
    return pack(CAF, files)[0]


def files_of(path: str) -> list[tuple[str, bytes, int | None, int | None]]:
    """Return path, content, time and checksum of all files, in the order of the index."""
    data = Path(path).read_bytes()
    reader = formats.detect(BytesArchive(data, path)).reader(BytesArchive(data, path))
    return [
        (entry.path, b"".join(reader.open(entry)), entry.modified_ns, entry.crc32c) for entry in reader.entries()
    ]


@pytest.mark.parametrize("other", WRITABLE, ids=lambda one: one.name)
def test_conversion_there_and_back_keeps_all_bytes(other: Format) -> None:
    Path("in.caf").write_bytes(caf(FILES))
    there = cafcat.convert("in.caf", f"there{other.suffix}")
    assert (there.input, there.output) == (os.path.abspath("in.caf"), os.path.abspath(f"there{other.suffix}"))
    assert (there.input_format, there.format) == ("caf", other.name)
    assert (there.files, there.bytes) == (len(FILES), sum(len(content) for _, content, _ in FILES))
    assert there.size_bytes == Path(there.output).stat().st_size
    assert files_of(there.output) == files_of("in.caf")
    cafcat.convert(there.output, "back.caf")
    assert Path("back.caf").read_bytes() == Path("in.caf").read_bytes()
    assert not list(Path().glob(".*"))


@pytest.mark.parametrize("last", WRITABLE, ids=lambda one: one.name)
@pytest.mark.parametrize("first", WRITABLE, ids=lambda one: one.name)
def test_from_every_format_to_every_format(first: Format, last: Format) -> None:
    Path("in.caf").write_bytes(caf(FILES))
    cafcat.convert("in.caf", "first", format=first.name)
    cafcat.convert("first", "last", format=last.name)
    assert files_of("last") == files_of("in.caf")


def test_files_are_converted_in_the_order_of_their_bytes() -> None:
    """The order of the index does not count: another program may have sorted it."""
    index = ",".join(f'"n{n:03}":{{"start_byte":{999 - n},"end_byte":{1000 - n}}}' for n in range(1000))
    text = f'{{"format_version":"1.0","files":{{{index}}}}}'.encode()
    Path("in.caf").write_bytes(bytes(n % 251 for n in range(1000)) + text + struct.pack("<I", len(text)))
    cafcat.convert("in.caf", "out.caf")
    found = files_of("out.caf")
    assert [path for path, *_ in found] == [f"n{n:03}" for n in reversed(range(1000))]
    assert b"".join(content for _, content, *_ in found) == bytes(n % 251 for n in range(1000))


def test_empty_archive_stays_empty() -> None:
    Path("in.caf").write_bytes(caf([]))
    for n, one in enumerate(WRITABLE):
        assert cafcat.convert("in.caf", f"out{n}", format=one.name).files == 0
        assert list(cafcat.inspect(f"out{n}").entries) == []


@pytest.mark.parametrize("source", WRITABLE, ids=lambda one: one.name)
def test_damaged_file_ends_the_conversion_and_leaves_nothing(source: Format, folder: Path) -> None:
    """Some formats keep several small files together, so that damage affects all of them."""
    files = [("a", random.randbytes(300_000), 1), ("b", random.randbytes(5 * MIB), 2)]
    data, entries, _ = pack(source, files)
    for damaged in entries:
        broken = bytearray(data)
        broken[(damaged.start_byte + damaged.end_byte) // 2] ^= 1
        Path("in").write_bytes(broken)
        with pytest.raises(Corrupt) as caught:
            cafcat.convert("in", "out.caf")
        assert caught.value.path in ("a", "b")
        assert os.listdir(folder) == ["in"]


def test_existing_output_is_replaced_only_with_overwrite() -> None:
    Path("in.caf").write_bytes(caf(FILES))
    Path("out.car").write_bytes(b"precious")
    with pytest.raises(Conflict):
        cafcat.convert("in.caf", "out.car")
    assert Path("out.car").read_bytes() == b"precious"
    Path("broken.caf").write_bytes(caf(FILES)[:-1])
    with pytest.raises((Corrupt, Unsupported)):
        cafcat.convert("broken.caf", "out.car", overwrite=True)
    assert Path("out.car").read_bytes() == b"precious"
    cafcat.convert("in.caf", "out.car", overwrite=True)
    assert files_of("out.car") == files_of("in.caf")
    cafcat.convert("in.caf", "in.caf", overwrite=True)
    assert Path("in.caf").read_bytes() == caf(FILES)


def test_refusals_before_anything_is_written(folder: Path) -> None:
    Path("in.caf").write_bytes(caf(FILES))
    with pytest.raises(InvalidInput, match=r"caf \(\.caf\), car \(\.car\), chunkio \(\.cio\)"):
        cafcat.convert("in.caf", "out.xyz")
    with pytest.raises(InvalidInput, match="no format 'xyz'"):
        cafcat.convert("in.caf", "out.caf", format="xyz")
    with pytest.raises(Unsupported, match="only the program clp-s can write them"):
        cafcat.convert("in.caf", "out.clp")
    with pytest.raises(NotFound):
        cafcat.convert("nothing.caf", "out.caf")
    with pytest.raises(OutputFailed):
        cafcat.convert("in.caf", "no/folder/out.caf")
    os.mkfifo("pipe")
    with pytest.raises(InvalidInput, match="not a device or pipe"):
        cafcat.convert("in.caf", "pipe", format="caf", overwrite=True)
    assert sorted(os.listdir(folder)) == ["in.caf", "pipe"]


def test_suffix_in_any_case_determines_the_format() -> None:
    assert [format_of_output(Path(f"x/a.b{suffix}"), None).name for suffix in (".caf", ".CAR", ".cio", ".clp")] == [
        "caf",
        "car",
        "chunkio",
        "clp-s",
    ]
    assert format_of_output(Path("x.caf"), "car").name == "car"


def test_a_car_of_blocks_becomes_files_named_by_their_cids() -> None:
    blocks = [leaf(b"first"), leaf(b""), leaf(b"third" * 1000)]
    Path("in.car").write_bytes(v1([blocks[0][0], blocks[1][0]], blocks))
    cafcat.convert("in.car", "out.caf")
    found = files_of("out.caf")
    assert [content for _, content, *_ in found] == [content for _, content in blocks]
    assert [path for path, *_ in found] == [entry.path for entry in cafcat.inspect("in.car").entries]
    assert all(path.startswith("bafkrei") for path, *_ in found)


def test_a_tree_with_a_missing_block_is_not_converted(folder: Path) -> None:
    here, missing = leaf(b"here"), leaf(b"missing")
    root = directory((b"here", here[0]), (b"missing", missing[0]))
    Path("in.car").write_bytes(v1([root[0]], [root, here]))
    assert [entry.path for entry in cafcat.inspect("in.car").entries] == ["here", "missing"]
    with pytest.raises(Corrupt) as caught:
        cafcat.convert("in.car", "out.caf")
    assert caught.value.path == "missing"
    assert os.listdir(folder) == ["in.car"]


def test_only_a_car_has_blocks() -> None:
    Path("in.caf").write_bytes(caf(FILES))
    inspection = cafcat.inspect("in.caf")
    assert inspection.about() == {"version": "1.0"}
    with pytest.raises(InvalidInput, match="only CARs have blocks"):
        inspection.blocks()


class Watching(Listener):
    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []
        self.files = self.bytes = 0

    def begin(self, verb: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        self.said.append((verb, files, size_bytes))
        self.files = self.bytes = 0

    def advance(self, files: int, size_bytes: int) -> None:
        self.files += files
        self.bytes += size_bytes

    def end(self) -> None:
        self.said.append(("end", self.files, self.bytes))


def test_progress_reaches_its_announced_total() -> None:
    Path("in.caf").write_bytes(caf(FILES))
    total = (len(FILES), sum(len(content) for _, content, _ in FILES))
    watching = Watching()
    cafcat.convert("in.caf", "out.car", progress=watching)
    assert watching.said == [("list", None, None), ("convert", *total), ("end", *total)]


def broken_off() -> Iterator[bytes]:
    yield b"x" * MIB
    yield b"y" * MIB
    raise Corrupt("the end is missing")


def test_a_large_file_that_breaks_off_may_come_again() -> None:
    watching = Watching()
    with new_archive(Output(Path("out.caf")), CAF, progress=watching) as made:
        made.add("small", 1, 1, iter((b"s",)))
        with pytest.raises(Corrupt):
            made.add("large", 3 * MIB, 2, broken_off())
        made.add("large", 3 * MIB, 2, iter((b"z" * MIB,) * 3))
    assert [(path, content[:1], len(content)) for path, content, *_ in files_of("out.caf")] == [
        ("small", b"s", 1),
        ("large", b"z", 3 * MIB),
    ]
    assert (made.file_count, made.content_bytes, watching.files, watching.bytes) == (2, 3 * MIB + 1, 2, 3 * MIB + 1)


def test_invalid_name_ends_the_conversion(folder: Path) -> None:
    text = b'{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":1},"":{"start_byte":0,"end_byte":1}}}'
    Path("in.caf").write_bytes(b"x" + text + struct.pack("<I", len(text)))
    with pytest.raises(Refused, match="name is empty"):
        cafcat.convert("in.caf", "out.caf")
    assert os.listdir(folder) == ["in.caf"]


def test_entries_in_the_order_of_their_bytes_lose_nothing() -> None:
    entries = [
        Entry("late", 2**62, 2**63 - 1, None, -(2**63)),
        Entry("empty b", 7, 7, 0, 2**63 - 1),
        Entry("empty a", 7, 7, 2**32 - 1, None),
        Entry("decoded 日本", 0, 9, None, 0, 0, "dag bafy"),
        Entry("contained", 0, 5, 1, None, 2**62, "x" * 70_000),
    ]
    ordered = EntriesByOffset(entries)
    assert (ordered.count, ordered.size_bytes) == (5, sum(entry.size_bytes for entry in entries))
    assert list(ordered) == [entries[n] for n in (4, 3, 1, 2, 0)]
    assert list(ordered) == list(ordered)
    ordered.close()


class RecordedArchive:
    """An archive that records all reads."""

    name = "recorded"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        self.reads.append((start_byte, end_byte))
        if end_byte > len(self.data):
            raise Corrupt("too short")
        return self.data[start_byte:end_byte]

    def parent_folder(self) -> None:
        return None


def test_read_ahead_makes_few_requests_for_sequential_reads() -> None:
    recorded = RecordedArchive(random.randbytes(20 * MIB))
    ahead = ReadAhead(recorded)
    for start in range(0, len(recorded.data) - 1000, 1000):
        assert ahead.read_at(start, start + 900) == recorded.data[start : start + 900]
    assert len(recorded.reads) < 12
    assert max(end - start for start, end in recorded.reads) <= 8 * MIB


def test_read_ahead_reads_few_bytes_for_random_reads() -> None:
    recorded = RecordedArchive(random.randbytes(20 * MIB))
    ahead = ReadAhead(recorded)
    size = len(recorded.data)
    for start, end in ((size - 64, size), (0, 64), (10 * MIB, 10 * MIB + 5), (MIB, 13 * MIB), (size, size), (5, 5)):
        assert ahead.read_at(start, end) == recorded.data[start:end]
    assert sum(end - start for start, end in recorded.reads) < 12 * MIB + 6 * 128 * 1024
    with pytest.raises(Corrupt):
        ahead.read_at(size - 1, size + 1)


def test_full_disk_is_a_failed_output(folder: Path) -> None:
    """The error names the output, not its temporary file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    Path("in.caf").write_bytes(caf(FILES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        for name in ("out.caf", "out.car", "out.cio"):
            with pytest.raises(OutputFailed) as caught:
                cafcat.convert("in.caf", name)
            assert caught.value.path == name
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(folder) == ["in.caf"]


def test_sink_of_the_conformance_suite_gets_the_bytes_of_the_file() -> None:
    for one in WRITABLE:
        sink = ListSink()
        writer = one.writer(sink)
        for path, content, time in FILES:
            writer.add(path, content, time)
        writer.finalize()
        Path("in.caf").write_bytes(caf(FILES))
        cafcat.convert("in.caf", "out", format=one.name, overwrite=True)
        assert sorted(files_of("out")) == sorted(files_of("in.caf"))
        assert Path("out").stat().st_size == len(sink.data)

"""ChunkIO as a format: archives of other programs by records, cafcat's own by the index, and damaged ones."""

import hashlib
import json
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cafcat.errors import Corrupt, Refused, Unsupported
from cafcat.formats.chunkio import CHUNKIO
from cafcat.formats.chunkio.metering import INTERVAL_BYTES, end_position
from cafcat.formats.chunkio.pieces import PIECE_BYTES, content_bytes_of, end_mark, index_mark, pieces_end
from cafcat.formats.chunkio.reader import ChunkIoReader
from cafcat.formats.chunkio.records import pack_header
from cafcat.formats.chunkio.records_reader import RecordReader
from cafcat.formats.chunkio.records_writer import RecordWriter, record_bytes
from cafcat.formats.chunkio.writer import ChunkIoWriter
from cafcat.model import Entry
from cafcat.operations.index_section import IndexSection
from cafcat.support.checksums import crc32c
from cafcat.testing.formats import BytesArchive, ListSink, pack
from tests.worlds.archives import vector_files

VECTORS = vector_files.VECTORS / "chunkio"
USER = bytes(range(16))
MIB = 1 << 20
SIZES = [0, 1, 65_464, 65_480, 65_481, MIB - 1, MIB, MIB + 1, 2 * MIB, 5 * MIB + 77]


def foreign(contents: list[bytes]) -> bytes:
    sink = ListSink()
    writer = RecordWriter(sink)
    for content in contents:
        writer.write(USER, content)
    return sink.data


def listed(data: bytes, name: str = "x.cio") -> list[Entry]:
    return list(CHUNKIO.reader(BytesArchive(data, name)).entries())


def opened(data: bytes, entry: Entry) -> bytes:
    return b"".join(CHUNKIO.reader(BytesArchive(data)).open(entry))


def read_all(data: bytes) -> list[bytes]:
    return [opened(data, entry) for entry in listed(data)]


def decoded(data: bytes, entry: Entry, block_bytes: int = 1 << 20) -> bytes:
    span = data[entry.start_byte : entry.end_byte]
    blocks = iter([span[at : at + block_bytes] for at in range(0, len(span), block_bytes)])
    return b"".join(CHUNKIO.decode(blocks, entry))


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.cio")), ids=lambda path: path.stem)
def test_archives_of_the_original_program(path: Path) -> None:
    data, expected = path.read_bytes(), json.loads(path.with_suffix(".json").read_text())["original_reader"]
    assert not data or CHUNKIO.sniff(data[:64], data[-64:])
    entries = listed(data, f"/some/folder/{path.name}")
    assert [(entry.path, entry.start_byte, entry.end_byte, entry.content_bytes) for entry in entries] == [
        (f"{path.name}/{said['begin']:016x}", said["begin"], said["end"], said["len"]) for said in expected
    ]
    for entry, said in zip(entries, expected, strict=True):
        for read in (opened, decoded):
            if said["ok"]:
                assert hashlib.sha256(read(data, entry)).hexdigest() == said["sha256"]
            else:
                with pytest.raises(Corrupt, match="SipHash"):
                    read(data, entry)


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("s3://bucket/some/log.cio", "log.cio"),
        ("folder/", "folder"),
        ("", "chunkio"),
        ("bad\udcff\0name", "bad?name"),
        ("é" * 2000, "é" * ((2048 - 17) // 2)),
    ],
)
def test_names_of_records_are_names_that_a_catalog_can_hold(name: str, prefix: str) -> None:
    (entry,) = listed(foreign([b"data"]), name)
    assert entry.path == f"{prefix}/{0:016x}"
    assert len(entry.path.encode()) <= 2048


@pytest.mark.parametrize("size", SIZES)
def test_files_of_any_size_in_any_blocks(size: int) -> None:
    content = bytes(range(251)) * (size // 251 + 1)
    data, entries, _ = pack(CHUNKIO, [("before", b"b", 1), ("file", content[:size], 2), ("after", b"a", 3)])
    assert listed(data) == entries
    assert len(list(RecordReader(BytesArchive(data)).records())) == max(1, -(-size // PIECE_BYTES)) + 4
    for block_bytes in (100_000, 65_536, 7 * MIB):
        assert decoded(data, entries[1], block_bytes) == content[:size]
    blocks = list(CHUNKIO.reader(BytesArchive(data)).open(entries[1]))
    assert b"".join(blocks) == content[:size]
    assert all(0 < len(block) <= MIB for block in blocks)
    assert content_bytes_of(entries[1].start_byte, entries[1].end_byte) == size


def test_large_records_of_other_programs_are_read_in_blocks() -> None:
    content = bytes(range(251)) * 20_000
    data = foreign([b"first", content])
    blocks = list(CHUNKIO.reader(BytesArchive(data)).open(listed(data)[1]))
    assert b"".join(blocks) == content
    assert all(0 < len(block) <= MIB for block in blocks)


def test_spans_that_no_pieces_have() -> None:
    for start in (0, 17, 65_536, 70_000):
        ends = {pieces_end(start, size) for size in SIZES}
        for size, end in zip(SIZES, sorted(ends), strict=True):
            assert content_bytes_of(start, end) == size
        assert content_bytes_of(start, end_position(start, 39)) is None
        assert content_bytes_of(start, end_position(start, PIECE_BYTES + 60)) is None
        assert content_bytes_of(start, start) is None
        assert content_bytes_of(start + 131_072, start) is None
    assert content_bytes_of(5, 100) is None


def test_index_is_read_from_the_end_of_a_chunk_alone() -> None:
    """A rebuild reads only the bytes from the index on."""
    data, entries, finished = pack(CHUNKIO, [(f"f{n}", b"x" * 5000, n) for n in range(100)])
    start = finished.index_start_byte
    section = IndexSection("name", start, [data[start:]])
    assert list(CHUNKIO.reader(section).entries()) == entries
    assert finished.index_crc32c == section.crc32c == crc32c(data[start:])


def test_an_index_of_several_pieces() -> None:
    files = [(f"{n:06}/{'n' * 200}", b"", n) for n in range(12_000)]
    data, entries, finished = pack(CHUNKIO, files)
    assert finished.size_bytes - finished.index_start_byte > 3 * MIB
    assert listed(data) == entries
    tracemalloc.start()
    for _ in CHUNKIO.reader(BytesArchive(data)).entries():
        pass
    assert tracemalloc.get_traced_memory()[1] < 12 * MIB
    tracemalloc.stop()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("block_bytes", [300_000, MIB, 3 * MIB])
def test_large_files_in_blocks_give_the_same_chunk(size: int, block_bytes: int) -> None:
    content = (bytes(range(251)) * (size // 251 + 1))[:size]
    whole, entries, _ = pack(CHUNKIO, [("a", b"1", 1), ("file", content, 2), ("b", b"2", 3)])
    sink = ListSink()
    writer = ChunkIoWriter(sink)
    writer.add("a", b"1", 1)
    entry = writer.open("file", 2)
    for at in range(0, size, block_bytes):
        entry.write(content[at : at + block_bytes])
        assert writer.size_if_finalized() <= len(whole) + 1000
    assert entry.close() == entries[1]
    writer.add("b", b"2", 3)
    assert writer.finalize().size_bytes == len(sink.data)
    assert sink.data == whole


def test_false_ends_of_chunks_are_corrupt() -> None:
    """The first has an end mark with content. The second has an index with a piece of another position."""
    data, _, finished = pack(CHUNKIO, [(f"{n:06}/{'n' * 200}", b"", n) for n in range(6000)])
    mark = pack_header(end_mark(finished.index_start_byte), 1, bytes(8))
    with pytest.raises(Corrupt, match="there is no index at its end"):
        listed(data[: finished.index_end_byte] + mark)
    second = pieces_end(finished.index_start_byte, MIB)
    raw = b"".join(
        record_bytes(second, index_mark(second + 1), bytes(content_bytes_of(second, finished.index_end_byte) or 0))
    )
    with pytest.raises(Corrupt, match="the index is damaged") as caught:
        listed(data[:second] + raw + data[finished.index_end_byte :])
    assert caught.value.byte == second


def test_a_full_index_refuses() -> None:
    writer = ChunkIoWriter(ListSink(), max_index_bytes=300)
    writer.add("a", b"", None)
    assert not writer.can_add("n" * 200, 0)
    with pytest.raises(Refused, match="index is full"):
        writer.add("n" * 200, b"", None)
    with pytest.raises(Refused, match="index is full"):
        writer.open("n" * 200, None)


def test_own_chunks_packed_into_a_record_are_content() -> None:
    inner, _, _ = pack(CHUNKIO, [("inner", b"data", 1)])
    # In the last chunk, a record begins at the position of the inner chunk's index.
    for outer in (foreign([inner]), foreign([b"first", inner]), foreign([b"1234", inner])):
        entries = listed(outer)
        assert entries[-1].path.startswith("x.cio/")
        assert opened(outer, entries[-1]) == inner
    data, entries, _ = pack(CHUNKIO, [("outer", inner, 1), ("second", inner * 3, 2)])
    assert listed(data) == entries
    assert opened(data, entries[1]) == inner * 3


def test_own_chunk_without_its_end_is_corrupt() -> None:
    data, _, _ = pack(CHUNKIO, [(f"f{n}", b"x" * 5000, n) for n in range(30)])
    for damaged in (data[:-1], data + b"x", data[:70_000], data[:100], data[:-30] + bytes(30)):
        with pytest.raises(Corrupt) as caught:
            CHUNKIO.reader(BytesArchive(damaged, "chunk-7"))
        assert caught.value.chunk == "chunk-7"
        assert "\n" not in str(caught.value)
    sink = ListSink()
    sink.write(data)
    RecordWriter(sink, len(data)).write(USER, b"appended by another program")
    with pytest.raises(Corrupt, match="there is no index at its end"):
        CHUNKIO.reader(BytesArchive(sink.data))


@pytest.mark.parametrize("size_bytes", [1, 15, 16, 55, 61, 100])
def test_bytes_without_a_record_are_no_archive(size_bytes: int) -> None:
    data = foreign([b"a content of some length"])[:55].ljust(size_bytes, b"?")[:size_bytes]
    with pytest.raises(Corrupt, match="no readable record"):
        CHUNKIO.reader(BytesArchive(data))


def test_torn_records_are_no_entries() -> None:
    torn = foreign([b"first", bytes(90_000), b"third"])
    assert [entry.start_byte for entry in listed(torn[:80_000])] == [0]
    sink = ListSink()
    sink.write(torn[:62_000])
    writer = RecordWriter(sink, 62_000)
    records = [writer.write(USER, content) for content in (b"second", bytes(90_000))]
    entries = listed(sink.data)
    assert [(entry.start_byte, entry.end_byte) for entry in entries] == [
        (0, 61),
        *((record.begin, record.end) for record in records),
    ]


def damage_content(data: bytearray, entry: Entry) -> None:
    data[entry.start_byte + 60] ^= 1


def damage_header(data: bytearray, entry: Entry) -> None:
    data[entry.start_byte + 3] ^= 1


@pytest.mark.parametrize("damage", [damage_content, damage_header])
def test_damaged_files_are_refused_before_any_of_their_bytes_are_given(
    damage: Callable[[bytearray, Entry], None],
) -> None:
    whole, entries, _ = pack(CHUNKIO, [("first", b"1" * 100, 1), ("file", b"2" * 100, 2)])
    data = bytearray(whole)
    damage(data, entries[1])
    assert listed(bytes(data)) == entries
    assert opened(bytes(data), entries[0]) == b"1" * 100
    with pytest.raises(Corrupt) as caught:
        next(CHUNKIO.reader(BytesArchive(bytes(data), "chunk-7")).open(entries[1]))
    assert (caught.value.path, caught.value.chunk, caught.value.byte) == ("file", "chunk-7", entries[1].start_byte)


def test_every_damaged_byte_of_an_own_chunk_is_detected_or_harmless() -> None:
    """Damage of a meter or of the file header is harmless."""
    content = bytes(65_000)
    whole, _, _ = pack(CHUNKIO, [("a", b"first", 1), ("b", content, 2)])
    meters = {*range(16), *range(INTERVAL_BYTES, INTERVAL_BYTES + 16)}
    places = {*range(200), *range(INTERVAL_BYTES - 500, len(whole))}
    assert len(whole) < 2 * INTERVAL_BYTES
    for at in places:
        data = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
        if at in meters:
            assert read_all(data) == [b"first", content]
            continue
        with pytest.raises(Corrupt):
            read_all(data)


def swapped(entry: Entry, **changes: object) -> Entry:
    return entry._replace(**changes)  # type: ignore[arg-type]


def test_spans_of_other_entries_are_refused() -> None:
    data, (a, b, c), _ = pack(CHUNKIO, [("a", b"1" * 50, 1), ("b", b"2" * 50, 2), ("c", bytes(3 * MIB), 3)])
    bad = [
        swapped(a, start_byte=a.start_byte + 1),
        swapped(a, start_byte=5),
        swapped(a, end_byte=a.end_byte - 1),
        swapped(a, end_byte=b.end_byte),
        swapped(a, content_bytes=49),
        swapped(a, content_bytes=None),
        swapped(a, content_bytes=2 * MIB),
        swapped(a, crc32c=5),
        swapped(c, start_byte=pieces_end(c.start_byte, PIECE_BYTES)),
        swapped(c, content_bytes=3 * MIB + 1),
        swapped(c, content_bytes=2 * MIB),
    ]
    for entry in bad:
        with pytest.raises(Corrupt):
            opened(data, entry)
    (record,) = listed(foreign([b"data"]))
    with pytest.raises(Corrupt, match="4 bytes, expected 5"):
        opened(foreign([b"data"]), swapped(record, content_bytes=5))
    with pytest.raises(Corrupt, match="not the piece that begins"):
        opened(foreign([b"data"]), swapped(record, decoding="pieces"))


def test_spans_that_are_too_short_or_too_long() -> None:
    data, (entry,), _ = pack(CHUNKIO, [("a", b"1" * 50, 1)])
    span = data[entry.start_byte : entry.end_byte]
    for blocks in ([], [span[:-1]], [span, b"x"], [span[:20]], [b""], [span] * 2):
        with pytest.raises(Corrupt):
            list(CHUNKIO.decode(iter(blocks), entry))
    data = foreign([b"x" * 65_480, b"y" * 50])
    first, second = listed(data)
    assert first.end_byte == INTERVAL_BYTES
    with pytest.raises(Corrupt, match="65552 were read"):
        list(CHUNKIO.decode(iter([data[: INTERVAL_BYTES + 16]]), first))
    with pytest.raises(Corrupt, match="more bytes after the end"):
        opened(data, first._replace(end_byte=second.end_byte))
    with pytest.raises(Unsupported, match="'zip'"):
        CHUNKIO.decode(iter([span]), entry._replace(decoding="zip"))


def deflate(content: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return stream.compress(content) + stream.flush()


def inflated_entries(data: bytes, max_bytes: int = MIB) -> Iterator[Entry]:
    return ChunkIoReader(BytesArchive(data, "x.cio")).inflated_entries(max_bytes)


def test_deflated_records_are_inflated_on_demand() -> None:
    contents = [b"first" * 1000, b"", bytes(MIB)]
    data = foreign([*map(deflate, contents), b"\xff\xff no DEFLATE", deflate(bytes(2 * MIB)), deflate(b"last")])
    entries = list(inflated_entries(data))
    assert [entry.content_bytes for entry in entries] == [5000, 0, MIB, 4]
    for read in (opened, decoded):
        assert [read(data, entry) for entry in entries] == [*contents, b"last"]
        for entry in entries[:1]:
            for size_bytes in (0, 4999, 5001):
                with pytest.raises(Corrupt, match="inflates to"):
                    read(data, entry._replace(content_bytes=size_bytes))
    assert [entry.decoding for entry in listed(data)] == ["record"] * 6


def test_errors_in_the_index_name_the_byte_of_the_file() -> None:
    text = b'{"format_version":"1.0","files":{' + b" " * (2 * MIB) + b"?}}"
    data = b""
    for start in range(0, len(text), MIB):
        data += b"".join(record_bytes(len(data), index_mark(len(data)), text[start : start + MIB]))
    data += b"".join(record_bytes(len(data), end_mark(0), b""))
    with pytest.raises(Corrupt, match="expected a path") as caught:
        listed(data)
    assert caught.value.byte == data.index(b"?")
    at = 3 * MIB // 2 + 100
    damaged = data[:at] + b"!" + data[at + 1 :]
    with pytest.raises(Corrupt, match="the index is damaged") as caught:
        listed(damaged)
    assert caught.value.byte == pieces_end(0, MIB)


def test_an_index_with_spans_that_no_file_has_is_refused() -> None:
    for span, words in (((0, 30), "cannot be the records"), ((0, 500), "exceeds the data")):
        first = b"".join(record_bytes(0, USER, b"data"))
        text = b'{"format_version":"1.0","files":{"a":{"start_byte":%d,"end_byte":%d}}}' % span
        data = first + b"".join(record_bytes(len(first), index_mark(len(first)), text))
        data += b"".join(record_bytes(len(data), end_mark(len(first)), b""))
        with pytest.raises(Corrupt, match=words):
            listed(data)

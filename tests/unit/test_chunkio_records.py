"""ChunkIO's records: files of the original program with expected answers, and misleading files."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from cafcat.errors import InvalidInput, StoreFailed
from cafcat.formats.chunkio.metering import (
    FILE_HEADER,
    INTERVAL_BYTES,
    MAX_POSITION,
    end_position,
    insert_meters,
    is_position,
    offset_to_position,
    position_to_offset,
    read_meter,
    strip_meters,
    write_meter,
)
from cafcat.formats.chunkio.records import MAX_CONTENT_BYTES, Record, pack_header, parse_header
from cafcat.formats.chunkio.records_reader import RecordReader
from cafcat.formats.chunkio.records_writer import RecordWriter
from cafcat.formats.chunkio.siphash import hasher, siphash
from cafcat.testing.formats import BytesArchive, FailingSink, ListSink
from tests.worlds.archives import vector_files

VECTORS = vector_files.VECTORS / "chunkio"
NAMES = ["boundary_m17", "boundary_m40", "boundary_p0", "corrupt_content10", "corrupt_header10", "empty_content"]
NAMES += ["large_multi_meter", "many_small", "open_only_no_chunks", "reopen_append_pads", "two_small"]
WRITTEN = [name for name in NAMES if not name.startswith("corrupt")]
USER = bytes(range(16))


def vector(name: str) -> tuple[bytes, Any]:
    return (VECTORS / f"{name}.cio").read_bytes(), json.loads((VECTORS / f"{name}.json").read_text())


def one_by_one(reader: RecordReader) -> Iterator[Record]:
    """Yield records in the way of the original program."""
    record = reader.first()
    while record is not None:
        yield record
        record = reader.first(record.begin + 1)


def backwards(reader: RecordReader) -> list[Record]:
    found = []
    record = reader.last()
    while record is not None:
        found.append(record)
        record = reader.last(0, record.begin)
    return found[::-1]


def answer(reader: RecordReader, record: Record) -> dict[str, Any]:
    content = b"".join(reader._content(record))
    u0, u1 = (int.from_bytes(half, "little") for half in (record.user_data[:8], record.user_data[8:]))
    found = {"begin": record.begin, "end": record.end, "len": record.content_bytes, "u0": u0, "u1": u1}
    return found | {"ok": reader.is_intact(record), "sha256": hashlib.sha256(content).hexdigest()}


def written(contents: list[bytes]) -> bytes:
    sink = ListSink()
    writer = RecordWriter(sink)
    for content in contents:
        writer.write(USER, content)
    return sink.data


def test_every_vector_is_tested_here() -> None:
    assert {path.stem for path in VECTORS.glob("*.cio")} == set(NAMES)


def test_siphash_is_that_of_the_vectors() -> None:
    vectors = json.loads((VECTORS / "siphash24_romkatv_key_vectors.json").read_text())
    assert len(vectors) == 64
    for size, expected in vectors.items():
        data = bytes(range(int(size)))
        assert siphash(data)[::-1].hex() == expected
        blocks = hasher()
        for n in data:
            blocks.update(bytes([n]))
        assert blocks.digest() == siphash(data)


def test_siphash_without_the_vectors() -> None:
    assert siphash(b"")[::-1].hex() == "0397b9f993dc8502"
    assert siphash(bytes(range(15)))[::-1].hex() == "2c0f15a08167ae2f"


@pytest.mark.parametrize("name", NAMES)
def test_the_reader_answers_as_the_original(name: str) -> None:
    data, expected = vector(name)
    reader = RecordReader(BytesArchive(data))
    records = list(reader.records())
    assert [answer(reader, record) for record in records] == expected["original_reader"]
    assert list(one_by_one(RecordReader(BytesArchive(data)))) == records
    assert backwards(RecordReader(BytesArchive(data))) == records


@pytest.mark.parametrize("name", WRITTEN)
def test_writer_writes_the_bytes_of_the_original(name: str) -> None:
    data, expected = vector(name)
    reader = RecordReader(BytesArchive(data))
    sink = ListSink()
    writer = RecordWriter(sink)
    for record, answer in zip(reader.records(), expected["written"], strict=True):
        content = reader.content(record)
        assert content is not None
        assert hashlib.sha256(content).hexdigest() == answer["sha256"]
        if name == "reopen_append_pads":
            writer = RecordWriter(sink, len(sink.data))
        assert writer.write(record.user_data, content) == record
    assert sink.data == data
    assert hashlib.sha256(sink.data).hexdigest() == expected["file_sha256"]


def end_by_the_published_rule(begin: int, size_bytes: int) -> int:
    """Return the end of a record by the rule in ../shared/design/formats.md."""
    k, p = 40 + size_bytes, begin % 65536
    n, m = divmod(k, 65520)
    return begin + k + 16 * (n + ((p == 0 and m > 0) or p + m > 65536))


@pytest.mark.parametrize("begin", [0, 17, 58, 65519, 65535, 65536, 65553, 131071, 1 << 40, (1 << 40) + 65535])
def test_ends_of_records_follow_the_published_rule(begin: int) -> None:
    sizes = {*range(100), *range(65400, 65600), *range(130_900, 131_200), MAX_CONTENT_BYTES}
    for size_bytes in sizes:
        end = end_position(begin, 40 + size_bytes)
        assert end == end_by_the_published_rule(begin, size_bytes)
        assert is_position(end)
        assert offset_to_position(position_to_offset(end)) == end


def test_positions_that_no_record_has() -> None:
    for interval in (1, 7):
        base = interval * INTERVAL_BYTES
        assert [n for n in range(-1, 18) if not is_position(base + n)] == list(range(1, 17))
    assert not is_position(16)
    assert not is_position(-1)
    assert not is_position(-INTERVAL_BYTES)
    assert not is_position(MAX_POSITION + 1)
    assert is_position(MAX_POSITION)


def test_meters_are_stripped_from_any_part_of_a_file() -> None:
    payload = b"".join(n.to_bytes(4, "big") for n in range(60_000))
    data = b"".join(insert_meters(0, 0, payload))
    assert data.startswith(FILE_HEADER)
    assert data[INTERVAL_BYTES : INTERVAL_BYTES + 16] == write_meter(0)
    for start in [0, 1, 15, 16, 17, 65535, 65536, 65540, 65552, 65553, 131072, len(data)]:
        for block in (1, 7, 16, 65536, 70_000, len(data)):
            limit = min(len(data), start + 40 * block)
            parts = [strip_meters(at, data[at : min(at + block, limit)]) for at in range(start, limit, block)]
            assert b"".join(parts) == strip_meters(start, data[start:limit])
    assert strip_meters(0, data) == payload


def test_invalid_meters_are_ignored() -> None:
    assert read_meter(write_meter(65536), 65536) == 65536
    assert read_meter(write_meter(65553), 65536) is None
    assert read_meter(write_meter(65540), 131072) is None
    assert read_meter(write_meter(65536)[:-1] + b"\0", 65536) is None
    assert read_meter(b"anything", 0) == 0


def test_invalid_headers_are_ignored() -> None:
    whole = pack_header(USER, 5, siphash(b"hello"))
    assert parse_header(whole, 0) == Record(0, 61, USER, 5, siphash(b"hello"))
    for n in range(len(whole)):
        assert parse_header(whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :], 0) is None
    assert parse_header(pack_header(USER, MAX_CONTENT_BYTES, bytes(8)), 0) is not None
    assert parse_header(pack_header(USER, MAX_CONTENT_BYTES + 1, bytes(8)), 0) is None
    assert parse_header(whole, MAX_POSITION - 3) is None


def test_contents_that_embed_whole_files_are_no_records() -> None:
    inner = written([b"inner"] * 5) + written([bytes(200_000), b"last"])
    outer = written([b"first", inner, inner[:70_000] + inner, b"last"])
    reader = RecordReader(BytesArchive(outer))
    records = list(reader.records())
    assert [reader.content(record) for record in records] == [b"first", inner, inner[:70_000] + inner, b"last"]
    for size_bytes in [*range(0, len(outer), 997), len(outer) - 1]:
        cut = RecordReader(BytesArchive(outer[:size_bytes]))
        found = list(cut.records())
        assert found == records[: len(found)]
        assert list(one_by_one(cut)) == found


@pytest.mark.parametrize("at", [56, 70, 95, 20_000, 65_537, 131_080, 196_607])
def test_damaged_byte_loses_few_records_and_adds_none(at: int) -> None:
    data = bytearray(written([bytes([n]) * 5000 for n in range(50)]))
    whole = list(RecordReader(BytesArchive(bytes(data))).records())
    data[at] ^= 0x55
    reader = RecordReader(BytesArchive(bytes(data)))
    found = list(reader.records())
    assert set(found) <= set(whole)
    assert len(found) >= 50 - 65536 // 5000 - 2
    assert list(one_by_one(reader)) == found


def test_a_damaged_meter_alone_loses_nothing() -> None:
    data = bytearray(written([b"first", bytes(300_000), b"last"]))
    whole = list(RecordReader(BytesArchive(bytes(data))).records())
    for meter in range(INTERVAL_BYTES, len(data), INTERVAL_BYTES):
        data[meter + 3] ^= 1
    assert list(RecordReader(BytesArchive(bytes(data))).records()) == whole


def test_record_behind_damaged_content_without_a_meter_is_not_listed() -> None:
    """The damaged content could end elsewhere. Only a meter proves the position of a record."""
    data = bytearray(written([bytes(140_000), b"second", bytes(70_000), b"fourth"]))
    records = list(RecordReader(BytesArchive(bytes(data))).records())
    data[131_072 + 3] ^= 1
    data[1000] ^= 1
    reader = RecordReader(BytesArchive(bytes(data)))
    assert list(reader.records()) == list(one_by_one(reader)) == [records[0], records[2], records[3]]
    assert not reader.is_intact(records[0])
    assert reader.content(records[0]) is None


def test_first_last_and_middle_in_any_range() -> None:
    data = written([bytes(size) for size in [3, 70_000, 0, 0, 5, 200_000, 65_000, 1]])
    records = list(RecordReader(BytesArchive(data)).records())
    edges = [-5, 0, 1, len(data), len(data) + 9, *(edge for r in records for edge in (r.begin, r.begin + 1))]
    for start in edges:
        for end in edges:
            reader = RecordReader(BytesArchive(data))
            within = [record for record in records if start <= record.begin < end]
            assert reader.first(start, end) == (within[0] if within else None)
            assert reader.last(start, end) == (within[-1] if within else None)
            middle = reader.middle(start, end)
            assert middle in within if within else middle is None


def test_torn_record_does_not_hide_later_records() -> None:
    torn = written([b"first", bytes(400_000)])[:100_000]
    sink = ListSink()
    sink.write(torn)
    writer = RecordWriter(sink, len(torn))
    appended = [writer.write(USER, content) for content in (b"second", b"third", bytes(400_000))]
    reader = RecordReader(BytesArchive(sink.data))
    assert [record.begin for record in reader.records()] == [0, 61, *(record.begin for record in appended)]
    assert [record for record in one_by_one(reader) if reader.is_intact(record)][1:] == appended
    assert appended[0].begin == 131_072


def test_after_an_error_the_next_record_begins_at_a_boundary() -> None:
    sink = FailingSink(200)
    writer = RecordWriter(sink)
    first = writer.write(USER, b"first")
    with pytest.raises(StoreFailed):
        writer.write(USER, bytes(500))
    with pytest.raises(StoreFailed, match="earlier error"):
        writer.write(USER, b"refused")
    sink.blocks.append(b"torn part")
    writer.resume(len(sink.data))
    second = writer.write(USER, b"second")
    assert second.begin == INTERVAL_BYTES
    assert sink.data[first.end : INTERVAL_BYTES] == b"torn part".ljust(INTERVAL_BYTES - first.end, b"\0")
    assert list(RecordReader(BytesArchive(sink.data)).records()) == [first, second]
    assert writer.position == len(sink.data)


def test_writer_refuses_invalid_records() -> None:
    sink = ListSink()
    writer = RecordWriter(sink)
    with pytest.raises(InvalidInput, match="16 bytes"):
        writer.write(b"short", b"")
    with pytest.raises(InvalidInput, match="cannot append to a file"):
        RecordWriter(sink, -1)
    with pytest.raises(InvalidInput, match="too large for another"):
        RecordWriter(sink, MAX_POSITION).write(USER, b"")

    class Huge(bytes):
        def __len__(self) -> int:
            return MAX_CONTENT_BYTES + 1

    with pytest.raises(InvalidInput, match="the limit is 2,147,483,591"):
        writer.write(USER, Huge())
    assert not sink.blocks


def test_hostile_file_is_listed_in_linear_time() -> None:
    """Each meter names a record whose content is the rest of the file, so that each record would have to be hashed.

    Another file has meters that name ever earlier records.
    """
    intervals = 400
    size = intervals * INTERVAL_BYTES
    data = bytearray(size)
    for n in range(intervals):
        begin = n * INTERVAL_BYTES
        content_bytes = position_to_offset(size) - position_to_offset(begin) - 40
        data[begin : begin + 16] = write_meter(begin)
        data[begin + 16 : begin + 56] = pack_header(USER, content_bytes, bytes(8))
    data[-INTERVAL_BYTES : -INTERVAL_BYTES + 16] = bytes(16)
    archive = BytesArchive(bytes(data))
    assert len(list(RecordReader(archive).records())) == intervals - 1
    assert sum(end - start for start, end in archive.reads) < 12 * size


def test_reads_are_few_and_no_larger_than_a_window() -> None:
    data = written([bytes(100)] * 20_000)
    archive = BytesArchive(data)
    assert len(list(RecordReader(archive).records())) == 20_000
    assert len(archive.reads) < 12
    assert max(end - start for start, end in archive.reads) <= 1 << 20
    archive = BytesArchive(written([bytes(3_000_000)] * 4))
    assert len(list(RecordReader(archive).records())) == 4
    assert sum(end - start for start, end in archive.reads) < 400_000

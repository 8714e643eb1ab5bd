"""Layers on ChunkIO's records: DEFLATE, triggers, look-up by time, and growing files."""

import zlib

import pytest

from cafcat.errors import Corrupt, InvalidInput, StoreFailed
from cafcat.formats.chunkio import buffered
from cafcat.formats.chunkio.buffered import BufferedWriter
from cafcat.formats.chunkio.deflating import Deflater, inflate
from cafcat.formats.chunkio.metering import INTERVAL_BYTES
from cafcat.formats.chunkio.records import Record
from cafcat.formats.chunkio.records_reader import RecordReader
from cafcat.formats.chunkio.records_writer import RecordWriter
from cafcat.formats.chunkio.tail import RecordTail
from cafcat.formats.chunkio.time_index import partition_point, records_after, ticks_of_ns, ticks_of_record
from cafcat.testing.formats import BytesArchive, FailingSink, ListSink

USER = bytes(range(16))
MIB = 1 << 20


def deflated(content: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return stream.compress(content) + stream.flush()


def blocks_of(data: bytes, size_bytes: int) -> list[bytes]:
    return [data[at : at + size_bytes] for at in range(0, len(data), size_bytes)]


CONTENTS = [b"", b"x", bytes(5 * MIB), bytes(range(256)) * 9000, bytes(MIB), bytes(2 * MIB)]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("block_bytes", [1, 5, 1000, 1 << 20])
def test_deflated_content_is_inflated(content: bytes, block_bytes: int) -> None:
    blocks = list(inflate(blocks_of(deflated(content), block_bytes), len(content)))
    assert b"".join(blocks) == content
    assert all(0 < len(block) <= MIB for block in blocks)


def test_inflate_yields_the_rest_of_the_output() -> None:
    """zlib may have consumed all input before it has returned all output."""
    for size_bytes in range(MIB + 1, MIB + 110, 9):
        raw = deflated(bytes(size_bytes))
        assert sum(map(len, inflate([raw], size_bytes))) == size_bytes


def test_a_stream_that_was_flushed_and_not_closed_is_whole() -> None:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    raw = stream.compress(b"data" * 1000) + stream.flush(zlib.Z_SYNC_FLUSH)
    assert b"".join(inflate([raw])) == b"data" * 1000
    assert list(inflate([])) == []


def test_invalid_deflate_data_are_corrupt() -> None:
    with pytest.raises(Corrupt, match="not a DEFLATE"):
        list(inflate([b"\xff" * 100]))
    with pytest.raises(Corrupt, match="bytes after the end"):
        list(inflate([deflated(b"data") + b"!"]))
    with pytest.raises(Corrupt, match="bytes after the end"):
        list(inflate([deflated(b"data"), b"!"]))


def test_a_bomb_is_stopped_at_the_bound() -> None:
    found = 0
    blocks = inflate([deflated(bytes(50 * MIB))], 3 * MIB)
    while found < 3 * MIB:
        found += len(next(blocks))
    assert found == 3 * MIB
    with pytest.raises(Corrupt, match="more than 3145728"):
        next(blocks)


def test_finished_deflater_refuses_data() -> None:
    deflater = Deflater()
    deflater.write(b"data")
    assert deflater.finish() == deflater.finish()
    with pytest.raises(InvalidInput):
        deflater.write(b"more")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def contents(data: bytes) -> list[bytes]:
    reader = RecordReader(BytesArchive(data))
    return [b"".join(inflate([reader.content(record) or b""])) for record in reader.records()]


def test_a_record_closes_when_it_is_large_enough() -> None:
    sink = ListSink()
    writer = BufferedWriter(RecordWriter(sink), close_at_bytes=100)
    closed = [len(writer.write(bytes([n]) * 30, USER)) for n in range(10)]
    assert closed == [0, 0, 0, 1, 0, 0, 0, 1, 0, 0]
    assert writer.size_bytes == 60
    assert writer.close() is not None
    assert writer.close() is None
    assert list(map(len, contents(sink.data))) == [120, 120, 60]


def test_the_size_is_that_of_the_original_unless_another_is_given() -> None:
    sink = ListSink()
    writer = BufferedWriter(RecordWriter(sink))
    assert [len(writer.write(bytes(1024), USER)) for _ in range(129)] == [0] * 127 + [1, 0]
    never = BufferedWriter(RecordWriter(sink), close_at_bytes=None)
    assert not any(never.write(bytes(MIB), USER) for _ in range(3))


def test_a_record_closes_when_it_is_old_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sink = Clock(), ListSink()
    monkeypatch.setattr(buffered, "monotonic", clock)
    writer = BufferedWriter(RecordWriter(sink), close_at_seconds=10)
    assert writer.due_in_seconds is None
    writer.write(b"first", USER)
    clock.now += 9
    assert writer.due_in_seconds == 1
    assert writer.close_if_due() is None
    writer.write(b"second", bytes(16))
    clock.now += 1
    (record,) = writer.write(b"third", bytes(16))
    assert record.user_data == USER
    clock.now += 10
    assert writer.close_if_due() is not None
    assert contents(sink.data) == [b"firstsecond", b"third"]


def test_both_triggers_in_one_write_give_both_records(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sink = Clock(), ListSink()
    monkeypatch.setattr(buffered, "monotonic", clock)
    writer = BufferedWriter(RecordWriter(sink), close_at_bytes=5, close_at_seconds=10)
    writer.write(b"old", USER)
    clock.now += 10
    assert len(writer.write(b"large", USER)) == 2
    assert contents(sink.data) == [b"old", b"large"]


def test_record_whose_write_failed_is_written_later() -> None:
    sink = FailingSink(10)
    records = RecordWriter(sink)
    writer = BufferedWriter(records)
    writer.write(b"data", USER)
    with pytest.raises(StoreFailed):
        writer.close()
    with pytest.raises(InvalidInput, match="not written"):
        writer.write(b"more", USER)
    records.resume(len(sink.data))
    assert writer.close() is not None
    writer.write(b"dropped", USER)
    writer.abandon()
    assert writer.close() is None
    with pytest.raises(InvalidInput, match="16 bytes"):
        writer.write(b"data", b"")
    assert contents(sink.data) == [b"data"]


def timed_file(times: list[int], size_bytes: int = 900) -> bytes:
    sink = ListSink()
    writer = RecordWriter(sink)
    for ticks in times:
        writer.write(ticks.to_bytes(8, "little", signed=True) + bytes(8), b"x" * size_bytes)
    return sink.data


def by_listing(records: list[Record], ticks: int) -> list[Record]:
    before = sum(ticks_of_record(record) <= ticks for record in records)
    return records[max(0, before - 1) :]


def test_ticks() -> None:
    assert ticks_of_ns(0) == 621_355_968_000_000_000
    assert ticks_of_ns(1_700_000_000_000_000_199) == 621_355_968_000_000_000 + 17_000_000_000_000_001
    assert ticks_of_ns(-1) == 621_355_968_000_000_000 - 1


@pytest.mark.parametrize("size_bytes", [0, 900, 70_000])
@pytest.mark.parametrize("count", [1, 2, 3, 200])
def test_records_are_found_by_time(count: int, size_bytes: int) -> None:
    times = [10 * (n // 3) for n in range(count)]
    data = timed_file(times, size_bytes)
    records = list(RecordReader(BytesArchive(data)).records())
    for ticks in {-1, 0, 1, *range(5, 10 * count // 3 + 20, 7)}:
        assert list(records_after(RecordReader(BytesArchive(data)), ticks)) == by_listing(records, ticks)
    half = records[count // 2].begin
    assert list(records_after(RecordReader(BytesArchive(data)), -1, 1, half)) == [
        record for record in records if 1 <= record.begin < half
    ]


def test_no_record_no_time() -> None:
    assert list(records_after(RecordReader(BytesArchive(b"")), 0)) == []
    assert partition_point(RecordReader(BytesArchive(bytes(100))), 0) is None


def test_looking_up_a_time_reads_little() -> None:
    archive = BytesArchive(timed_file(list(range(20_000))))
    record = next(records_after(RecordReader(archive), 12_345))
    assert ticks_of_record(record) == 12_345
    assert len(archive.reads) < 60
    assert sum(end - start for start, end in archive.reads) < archive.size_bytes // 6


def test_times_are_found_though_all_meters_are_damaged() -> None:
    data = bytearray(timed_file(list(range(3000))))
    for meter in range(INTERVAL_BYTES, len(data), INTERVAL_BYTES):
        data[meter] ^= 1
    archive = BytesArchive(bytes(data))
    assert ticks_of_record(next(records_after(RecordReader(archive), 1234))) == 1234


class Growing(BytesArchive):
    def grow(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)


def test_a_file_that_grows_byte_by_byte_gives_each_record_once() -> None:
    data = timed_file([1, 2, 3], 30)
    archive = Growing(b"")
    tail = RecordTail(archive)
    ends = [record.end for record in RecordReader(BytesArchive(data)).records()]
    for size_bytes in range(len(data) + 1):
        archive.grow(data[:size_bytes])
        found = list(tail.poll())
        assert [record.end for record in found] == [end for end in ends if end == size_bytes]
        assert all(tail.content(record) == b"x" * 30 for record in found)
    assert tail.position == len(data)
    assert tail.skipped_count == 0
    again = RecordTail(archive, ends[0])
    assert [record.end for record in again.poll()] == ends[1:]


def test_tail_waits_for_bytes_that_are_written_late() -> None:
    """The size of a file may grow before its bytes are written."""
    data = timed_file([1, 2], 40_000)
    archive = Growing(bytes(len(data)))
    tail = RecordTail(archive)
    assert list(tail.poll()) == []
    archive.grow(data[:40_000] + bytes(len(data) - 40_000))
    assert list(tail.poll()) == []
    archive.grow(data)
    assert [ticks_of_record(record) for record in tail.poll()] == [1, 2]


def test_tail_reads_incomplete_records_again() -> None:
    data = timed_file([1, 2], 30)
    archive = Growing(data[:86] + bytes(len(data) - 86))
    tail = RecordTail(archive)
    assert [ticks_of_record(record) for record in tail.poll()] == [1]
    archive.grow(data)
    assert [ticks_of_record(record) for record in tail.poll()] == [2]


def test_a_torn_record_is_passed_over_when_another_follows() -> None:
    torn = timed_file([1, 2], 500)[:-100]
    archive = Growing(torn)
    tail = RecordTail(archive)
    assert [ticks_of_record(record) for record in tail.poll()] == [1]
    assert list(tail.poll()) == []
    sink = ListSink()
    sink.write(torn)
    RecordWriter(sink, len(torn)).write((3).to_bytes(16, "little"), b"after a crash")
    archive.grow(sink.data)
    assert [ticks_of_record(record) for record in tail.poll()] == [3]
    assert tail.skipped_count == 1
    assert list(tail.poll()) == []


def test_a_file_that_became_shorter_is_another_one() -> None:
    archive = Growing(timed_file([1, 2]))
    tail = RecordTail(archive)
    list(tail.poll())
    archive.grow(timed_file([1]))
    with pytest.raises(Corrupt, match="became shorter"):
        list(tail.poll())

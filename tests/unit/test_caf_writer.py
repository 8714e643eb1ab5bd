"""Output of the CAF writer: the published layout, limits, and bounded memory."""

import gc
import hashlib
import json
import struct
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from cafcat.errors import Corrupt, Refused, StoreFailed
from cafcat.formats.caf.format import CAF
from cafcat.formats.caf.writer import CafWriter
from cafcat.formats.registry import by_name
from cafcat.model import Entry
from cafcat.support.checksums import crc32c
from cafcat.testing.formats import BytesArchive, ListSink, pack

HEAD = b'{"format_version":"1.0","files":{'


def parse(data: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return data section and index, parsed with struct and json alone."""
    (size,) = struct.unpack("<I", data[-4:])
    return data[: -4 - size], json.loads(data[-4 - size : -4])


def test_chunks_have_the_published_layout() -> None:
    files = [("z.txt", b"first", 5), ("a/b.txt", b"", None), ("ü/日本", b"\0\xff" * 1000, -7)]
    data, _, finished = pack(CAF, files)
    content, index = parse(data)
    assert list(index) == ["format_version", "files", "index_crc32c"]
    assert index["format_version"] == "1.0"
    assert content == b"".join(content for _, content, _ in files)
    assert list(index["files"]) == [path for path, _, _ in files]
    position = 0
    for path, file, modified_ns in files:
        expected: dict[str, int] = {
            "start_byte": position,
            "end_byte": position + len(file),
            "crc32c": crc32c(file),
        }
        if modified_ns is not None:
            expected["modified_ns"] = modified_ns
        assert index["files"][path] == expected
        assert list(index["files"][path]) == list(expected)
        position += len(file)
    assert finished.data_bytes == finished.index_start_byte == position
    assert finished.index_end_byte == len(data) - 4


def test_the_bytes_of_an_archive() -> None:
    data, _, _ = pack(CAF, [('a"b\\c\n\x01é\u2028<&', b"hello", 12)])
    index = HEAD + (
        b'"a\\"b\\\\c\\n\\u0001\xc3\xa9\xe2\x80\xa8<&":'
        b'{"start_byte":0,"end_byte":5,"crc32c":2591144780,"modified_ns":12}}'
    )
    index += b',"index_crc32c":"%08x"}' % crc32c(index)
    assert data == b"hello" + index + len(index).to_bytes(4, "little")


def test_an_empty_archive_is_an_index_with_its_checksum() -> None:
    covered = b'{"format_version":"1.0","files":{}'
    assert pack(CAF, [])[0] == covered + b',"index_crc32c":"%08x"}=\0\0\0' % crc32c(covered)


@pytest.mark.parametrize("modified_ns", [1 << 63, -(1 << 63) - 1, 10**30])
def test_a_time_beyond_64_bits_is_left_out_of_the_index(modified_ns: int) -> None:
    data, entries, _ = pack(CAF, [("a", b"x", modified_ns)])
    assert entries[0].modified_ns == modified_ns
    assert list(CAF.reader(BytesArchive(data)).entries()) == [entries[0]._replace(modified_ns=None)]


def test_abandoned_bytes_stay_dead_before_the_next_file() -> None:
    sink = ListSink()
    writer = CAF.writer(sink)
    entry = writer.open("gone", None)
    entry.write(b"dead")
    entry.abandon()
    assert writer.add("kept", b"live", None) == Entry("kept", 4, 8, crc32c(b"live"), None)
    finished = writer.finalize()
    assert parse(sink.data)[0] == b"deadlive"
    assert finished.data_bytes == 8


@pytest.mark.parametrize("name", ["caf", "car", "chunkio"])
def test_own_archive_with_a_repeated_name_is_refused(name: str) -> None:
    archive_format = by_name(name)
    data, _, finished = pack(archive_format, [("a", b"old", None), ("b", b"", None), ("a", b"new!", None)])
    assert finished.file_count == 3
    with pytest.raises(Corrupt, match="this name twice") as caught:
        list(archive_format.reader(BytesArchive(data)).entries())
    assert caught.value.path == "a"


def test_size_of_written_files_is_predicted_exactly() -> None:
    sink = ListSink()
    writer = CAF.writer(sink)
    for n in range(300):
        writer.add(f'q"{n}\n', b"x" * n, None if n % 2 else n)
    predicted = writer.size_if_finalized()
    assert writer.finalize().size_bytes == predicted == len(sink.data)


def test_a_file_being_written_counts_with_its_index_entry() -> None:
    sink = ListSink()
    writer = CAF.writer(sink)
    entry = writer.open("é" * 100, (1 << 63) - 1)
    entry.write(b"12345")
    predicted = writer.size_if_finalized()
    entry.close()
    writer.finalize()
    assert len(sink.data) <= predicted <= len(sink.data) + 60


def test_full_index_is_predicted_and_refused_before_any_write() -> None:
    sink = ListSink()
    writer = CafWriter(sink, max_index_bytes=400)
    count = 0
    while writer.can_add(f"file{count}", 1 << 40):
        writer.add(f"file{count}", b"data", 10**18)
        count += 1
    count += add_until_refused(writer)
    written = sink.data
    with pytest.raises(Refused, match="index is full") as caught:
        writer.add("one more", b"data", None)
    assert caught.value.path == "one more"
    with pytest.raises(Refused, match="index is full"):
        writer.open("one more", None)
    assert sink.data == written
    finished = writer.finalize()
    assert finished.file_count == count >= 3
    assert finished.index_end_byte - finished.index_start_byte <= 400
    assert len(list(CAF.reader(BytesArchive(sink.data)).entries())) == count


def add_until_refused(writer: CafWriter) -> int:
    """Return the number of files that still fit. `can_add` is careful: some files fit after it returned False."""
    for n in range(1000):
        try:
            writer.add(f"more{n}", b"", None)
        except Refused:
            return n
    raise AssertionError("the index did not become full")


class Count:
    """A sink that counts and hashes bytes, and stores none."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.longest = 0
        self.hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.size_bytes += len(data)
        self.longest = max(self.longest, len(data))
        self.hash.update(data)


def add_many(writer: CafWriter, count: int) -> None:
    for n in range(count):
        writer.add(f"{'folder/' * 20}file{n:08}", b"", 10**18)


@pytest.mark.slow
def test_memory_does_not_depend_on_the_number_of_files() -> None:
    sink = Count()
    writer = CafWriter(sink)
    tracemalloc.start()
    try:
        add_many(writer, 80_000)
        finished = writer.finalize()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert finished.size_bytes == sink.size_bytes
    assert finished.index_end_byte > 15 << 20
    assert peak < 12 << 20
    assert sink.longest <= 1 << 20


def test_a_writer_that_is_dropped_closes_its_temporary_file() -> None:
    writer = CafWriter(Count())
    add_many(writer, 60_000)
    del writer
    gc.collect()  # an unclosed file would be a ResourceWarning here, which is an error


def test_no_room_for_the_index_is_an_error_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    writer = CafWriter(Count())
    with pytest.raises(StoreFailed, match=r"temporary file.*TMPDIR"):
        add_many(writer, 100_000)
    with pytest.raises(StoreFailed, match="broken"):
        writer.finalize()

"""DataBundle chunks: contents by the published design, decoding of entries, and refused chunks."""

import random
import sys
import zlib
from itertools import pairwise

import pytest

from cafcat.errors import Corrupt, InvalidInput, NotInstalled, Unsupported
from cafcat.formats import registry
from cafcat.formats.databundle import DATABUNDLE
from cafcat.formats.databundle.decoding import MAX_ZERO_RUNS, decoding_text, parse_decoding
from cafcat.formats.databundle.layout import (
    ALIGNMENT,
    HEAD_BYTES,
    LARGE_BYTES,
    RECORD_BYTES,
    TRAILER_BYTES,
    encode_head,
    file_key,
    parse_file_key,
    parse_head,
    record_key,
    trailer,
)
from cafcat.formats.databundle.messages import DIRECTORY, FILE_TYPE_URL, REGULAR, messages
from cafcat.formats.databundle.rows import row
from cafcat.model import MAX_PATH_BYTES, Entry
from cafcat.support.checksums import crc32c
from cafcat.testing.formats import BytesArchive, ListSink, pack

NOISE = random.Random(6).randbytes(3 << 20)


def packed(*files: tuple[str, bytes]) -> tuple[bytes, list[Entry]]:
    data, entries, _ = pack(DATABUNDLE, [(path, content, 1) for path, content in files])
    return data, entries


def rows_of(data: bytes) -> dict[bytes, bytes]:
    """Return the rows at the end of the file, parsed as one message."""
    start = DATABUNDLE.reader(BytesArchive(data)).index_span[0]
    return {found.key: found.value for found in messages().Table.FromString(data[start:]).rows}


def sealed(data: bytes, rows: bytes) -> bytes:
    """Return the records of a chunk with another table."""
    start = DATABUNDLE.reader(BytesArchive(data)).index_span[0]
    return data[:start] + rows + trailer(start, crc32c(rows))


def own_row(path: str, size_bytes: int, decoding: str, span: tuple[int, int], **other: object) -> bytes:
    made = messages()
    file = made.BundleFile(start_byte=span[0], end_byte=span[1], decoding=decoding)
    user_data = made.Any(type_url=FILE_TYPE_URL, value=file.SerializeToString())
    members = {"type": REGULAR, "uncompressed_size": size_bytes, "user_data": user_data, **other}
    return row(file_key(path), made.FileMetadata(**members).SerializeToString())


def contents(data: bytes) -> dict[str, bytes]:
    reader = DATABUNDLE.reader(BytesArchive(data))
    return {entry.path: b"".join(reader.open(entry)) for entry in reader.entries()}


def uncompressed(data: bytes) -> bytes:
    """Return all data by the published design alone: head, rows of records, zlib."""
    header = parse_head(data)
    assert header.compression_method == 3
    records = []
    for key, value in rows_of(data).items():
        if key[0] == 3:
            records.append(messages().RecordMetadata.FromString(value))
            assert record_key(0, records[-1].shard_uncompressed_offset) == key
    whole = b""
    for record, following in zip(records, [*records[1:], None], strict=True):
        assert record.shard_uncompressed_offset == len(whole)
        if record.all_zeros:
            end = following.shard_uncompressed_offset if following else len(whole) + RECORD_BYTES
            whole += bytes(end - len(whole))
            continue
        assert record.shard_byte_offset % ALIGNMENT == 0
        whole += zlib.decompressobj().decompress(data[HEAD_BYTES + record.shard_byte_offset :])
    return whole


def test_head_and_config_follow_the_published_design() -> None:
    data, _ = packed(("a", b"hello"))
    assert data[:4] == b"daBS"
    assert int.from_bytes(data[8:12], "little") == HEAD_BYTES
    header = parse_head(data)
    assert (header.shard_index, header.shard_count, header.record_size) == (0, 1, 262_144)
    assert (header.record_alignment, header.WhichOneof("metadata")) == (4096, "metadata_at_eof")
    assert not any(data[12 + int.from_bytes(data[4:8], "little") : HEAD_BYTES])
    config = messages().BundleConfig.FromString(rows_of(data)[b"\x01"])
    assert (config.version_magic, config.block_size, config.record_size) == ("daBundleV1", 4096, 262_144)


def test_the_records_are_read_by_the_published_design_alone() -> None:
    files = [(f"f{n}", NOISE[n * 9000 : n * 20_000]) for n in range(40)]
    data, entries = packed(*files, ("large", NOISE), ("zeros", bytes(LARGE_BYTES + 5)), ("after", b"x"))
    whole = uncompressed(data)
    for (path, content), entry in zip(files, entries, strict=False):
        metadata = messages().FileMetadata.FromString(rows_of(data)[file_key(path)])
        start = metadata.shard_uncompressed_offset
        assert (metadata.type, metadata.crc32c) == (REGULAR, crc32c(content))
        assert whole[start : start + metadata.uncompressed_size] == content
        assert entry.size_bytes == len(content)
    assert contents(data) == dict([*files, ("large", NOISE), ("zeros", bytes(LARGE_BYTES + 5)), ("after", b"x")])


def test_small_files_share_a_record_and_no_byte() -> None:
    files = [(f"f{n}", b"%d " % n * 500) for n in range(50)]
    data, entries = packed(*files)
    assert sum(key[0] == 3 for key in rows_of(data)) == 1
    assert all(one.end_byte == other.start_byte for one, other in pairwise(entries))
    assert entries[0].start_byte == HEAD_BYTES
    for entry, (_, content) in zip(entries, files, strict=True):
        span = data[entry.start_byte : entry.end_byte]
        assert b"".join(DATABUNDLE.decode(iter([span]), entry)) == content


def test_a_file_of_1_mib_begins_a_record() -> None:
    for size_bytes, begins in ((LARGE_BYTES - 1, False), (LARGE_BYTES, True)):
        _, entries = packed(("small", b"x"), ("file", NOISE[:size_bytes]))
        assert (entries[1].decoding == "deflate 0") == begins
        assert (entries[1].start_byte % ALIGNMENT == 0) == begins


@pytest.mark.parametrize("size_bytes", [RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, 2 * RECORD_BYTES])
@pytest.mark.parametrize("before", [0, 1, 5, RECORD_BYTES - 1])
def test_files_about_the_ends_of_records(size_bytes: int, before: int) -> None:
    files = [("before", NOISE[:before]), ("file", NOISE[:size_bytes]), ("after", b"after")]
    data, entries = packed(*files)
    assert contents(data) == dict(files)
    assert uncompressed(data) == b"".join(content for _, content in files)
    for entry, (_, content) in zip(entries, files, strict=True):
        if entry.decoding is not None:
            span = data[entry.start_byte : entry.end_byte]
            blocks = [span[n : n + 1000] for n in range(0, len(span), 1000)]
            assert b"".join(DATABUNDLE.decode(iter(blocks), entry)) == content


def test_a_record_of_zeros_has_no_bytes() -> None:
    content = bytes(3 * RECORD_BYTES) + b"x" + bytes(3 * RECORD_BYTES)
    data, (entry,) = packed(("file", content))
    assert entry.decoding == "deflate 0 0+3,4+2"
    assert len(data) < 4 * ALIGNMENT
    assert contents(data) == {"file": content}


def test_a_file_of_zeros_alone_has_no_bytes() -> None:
    data, (entry,) = packed(("zeros", bytes(8 * RECORD_BYTES)))
    assert (entry.start_byte, entry.end_byte, entry.size_bytes) == (HEAD_BYTES, HEAD_BYTES, 8 * RECORD_BYTES)
    assert contents(data) == {"zeros": bytes(8 * RECORD_BYTES)}
    assert b"".join(DATABUNDLE.decode(iter(()), entry)) == bytes(8 * RECORD_BYTES)


def test_many_runs_of_zeros_are_stored_to_keep_the_decoding_short() -> None:
    content = (bytes(RECORD_BYTES) + b"x" * RECORD_BYTES) * (MAX_ZERO_RUNS + 4)
    data, (entry,) = packed(("file", content))
    assert entry.decoding is not None
    assert entry.decoding.count("+") == MAX_ZERO_RUNS
    assert b"".join(DATABUNDLE.reader(BytesArchive(data)).open(entry)) == content


def test_large_file_in_blocks_buffers_at_most_1_mib() -> None:
    sink = ListSink()
    writer = DATABUNDLE.writer(sink)
    entry = writer.open("file", None)
    for n in range(0, len(NOISE), 100_000):
        entry.write(NOISE[n : n + 100_000])
        predicted = writer.size_if_finalized()
    assert len(sink.data) > len(NOISE) - LARGE_BYTES - 2 * RECORD_BYTES
    entry.close()
    assert writer.size_if_finalized() <= predicted
    writer.finalize()
    assert len(sink.data) <= predicted
    assert contents(sink.data) == {"file": NOISE}


def test_a_large_file_that_is_abandoned_leaves_dead_records() -> None:
    sink = ListSink()
    writer = DATABUNDLE.writer(sink)
    given_up = writer.open("given up", None)
    given_up.write(NOISE)
    given_up.abandon()
    writer.add("file", b"content", None)
    writer.finalize()
    assert contents(sink.data) == {"file": b"content"}
    assert uncompressed(sink.data)[:LARGE_BYTES] == NOISE[:LARGE_BYTES]


def test_full_chunk_refuses_files() -> None:
    writer = DATABUNDLE.writer(ListSink())
    assert writer.can_add("file", 1 << 61)
    assert not writer.can_add("file", 1 << 62)


def test_last_file_of_a_repeated_path_counts() -> None:
    data, entries = packed(("b", b"first"), ("a", b"2"), ("b", b"last"))
    assert list(DATABUNDLE.reader(BytesArchive(data)).entries()) == entries[1:]
    assert contents(data) == {"a": b"2", "b": b"last"}


def test_listing_reads_the_end_alone() -> None:
    data, _ = packed(("file", NOISE))
    archive = BytesArchive(data)
    assert len(list(DATABUNDLE.reader(archive).entries())) == 1
    assert min(start for start, _ in archive.reads) >= len(data) - 1000


def test_detection_is_by_content() -> None:
    data, _ = packed(("file", b"x"))
    assert registry.detect(BytesArchive(data)).name == "databundle"


@pytest.mark.parametrize("path", ["a", "dir/a", "dir/", "/", "a//b", "é/ü", "x" * MAX_PATH_BYTES])
def test_keys_of_files(path: str) -> None:
    assert parse_file_key(file_key(path)) == path


def test_keys_order_folders_and_records() -> None:
    assert file_key("b") == b"\x02\0\0b\0\0"
    assert file_key("a/b") == b"\x02a/\0\0b\0\0"
    assert record_key(1, 2) == bytes.fromhex("03 0000000000000001 0000000000000002")
    assert parse_file_key(record_key(0, 0)) is None


@pytest.mark.parametrize(
    "key",
    [b"\x02", b"\x02a\0\0", b"\x02a\0\0b\0\0", b"\x02\0\0a/b\0\0", b"\x02\0\0\xff\0\0", b"\x02\0\0a\0\xff\0\0"],
)
def test_invalid_keys_are_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_file_key(key)


@pytest.mark.parametrize(
    ("offset", "runs"), [(0, []), (262_143, []), (0, [(0, 3)]), (5, [(1, 1), (3, 99_999_999)])]
)
def test_decodings_and_back(offset: int, runs: list[tuple[int, int]]) -> None:
    assert parse_decoding(decoding_text(offset, runs)) == (offset, runs)


@pytest.mark.parametrize(
    "text",
    [
        *("", "deflate", "deflate -1", "deflate 01", "deflate 262144", "deflate 0 ", "deflate 0 0+0", "pieces"),
        *("deflate 0 1+1,2+1", "deflate 0 2+1,0+1", "deflate 7 0+1", "deflate 0 0+1,", "deflate ٣"),
        "deflate 0 0+1" + ",9+1" * 99,
        "deflate 0 " + ",".join(f"{2 * n}+1" for n in range(MAX_ZERO_RUNS + 1)),
    ],
)
def test_invalid_decodings_are_refused(text: str) -> None:
    assert parse_decoding(text) is None
    with pytest.raises(Unsupported):
        list(DATABUNDLE.decode(iter(()), Entry("file", 0, 0, 0, None, 5, text)))


DAMAGED_SPANS = {
    "cut": (lambda span: span[:-10], "ends before the end of the file"),
    "longer": (lambda span: span + zlib.compress(b"more")[2:], "more bytes after the end"),
    "empty": (lambda _: b"", "ends before the end of the file"),
    "not valid DEFLATE": (lambda span: b"\xff" * len(span), "not valid DEFLATE"),
    "of another size": (lambda _: zlib.compress(b"x"), "a record ends too early|ends within the span"),
}


@pytest.mark.parametrize("damage", DAMAGED_SPANS)
def test_a_damaged_span(damage: str) -> None:
    change, message = DAMAGED_SPANS[damage]
    data, (entry,) = packed(("file", NOISE[:100_000]))
    with pytest.raises(Corrupt, match=message) as caught:
        list(DATABUNDLE.decode(iter([change(data[entry.start_byte : entry.end_byte])]), entry))
    assert caught.value.path == "file"


def test_a_record_with_another_adler32() -> None:
    data, (entry,) = packed(("file", b"x" * LARGE_BYTES))
    span = bytearray(data[entry.start_byte : entry.end_byte])
    at = len(span.split(bytes(100))[0].rstrip(b"\0")) - 1  # position of the last byte of the first record
    span[at] ^= 1
    with pytest.raises(Corrupt, match="not valid DEFLATE"):
        list(DATABUNDLE.decode(iter([bytes(span)]), entry))


@pytest.mark.parametrize("size_bytes", [LARGE_BYTES + 1, LARGE_BYTES - 1, 1 << 40])
def test_a_file_of_another_size(size_bytes: int) -> None:
    data, (entry,) = packed(("file", NOISE[:LARGE_BYTES]))
    with pytest.raises(Corrupt):
        list(
            DATABUNDLE.decode(
                iter([data[entry.start_byte : entry.end_byte]]), entry._replace(content_bytes=size_bytes)
            )
        )


def test_records_that_are_not_of_the_size_of_the_file() -> None:
    span = zlib.compress(bytes(RECORD_BYTES + 10))
    with pytest.raises(Corrupt, match="more bytes than it should"):
        list(DATABUNDLE.decode(iter([span]), Entry("file", 4096, 9999, 0, None, RECORD_BYTES + 10, "deflate 0")))
    with pytest.raises(Corrupt, match=r"a record ends too early|ends within the span"):
        list(DATABUNDLE.decode(iter([zlib.compress(b"x")]), Entry("file", 4096, 9999, 0, None, 1, "deflate 0")))


def test_records_that_end_near_a_multiple_of_4096() -> None:
    """Only the checksum may be behind such a multiple."""
    ends = set()
    for zeros in range(4200, 4600):
        files = [("before", b"x"), ("file", NOISE[: RECORD_BYTES - 1 - zeros] + bytes(zeros)), ("after", b"y")]
        data, entries = packed(*files)
        span = data[entries[1].start_byte : entries[1].end_byte]
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        inflater.decompress(span)
        ends.add((entries[1].end_byte - len(inflater.unused_data)) % ALIGNMENT)
        assert b"".join(DATABUNDLE.decode(iter([span]), entries[1])) == files[1][1]
        assert entries[2].start_byte == entries[1].end_byte
        if ends >= {4093, 4094, 4095, 0}:
            return
    pytest.fail(f"no record ended there: {sorted(ends)}")


def test_more_zeros_than_the_file_has() -> None:
    for decoding in ("deflate 0 0+3", "deflate 0 0+1,7+1", "deflate 0 9+1"):
        entry = Entry("file", 0, 0, 0, None, RECORD_BYTES, decoding)
        with pytest.raises(Corrupt):
            list(DATABUNDLE.decode(iter(()), entry))


def test_content_with_another_checksum() -> None:
    data, (entry,) = packed(("file", b"content"))
    other = entry._replace(crc32c=7)
    with pytest.raises(Corrupt, match="CRC-32C"):
        list(DATABUNDLE.reader(BytesArchive(data)).open(other))


def test_a_table_with_another_checksum() -> None:
    data, _ = packed(("file", b"content"))
    changed = bytearray(data)
    changed[-TRAILER_BYTES - 5] ^= 1
    with pytest.raises(Corrupt, match="CRC-32C") as caught:
        DATABUNDLE.reader(BytesArchive(bytes(changed))).entries()
    assert caught.value.byte == DATABUNDLE.reader(BytesArchive(data)).index_span[0]


SPAN = (HEAD_BYTES, HEAD_BYTES + 20)
BAD_ROWS = {
    "no row": b"\x12\x02ab",
    "a row that is cut": b"\x0a\x7fabc",
    "a row that is too long": b"\x0a\xff\xff\xff\xff\x0f",
    "a row that is larger than any": row(b"\x03" + bytes(70_000), b""),
    "a row of nothing": b"\x0a\0",
    "a row without a key": row(b"", b"value"),
    "a row of an unknown table": row(b"\x09", b""),
    "a row that ends in its size": b"\x0a\xff",
    "no message": row(b"\x02\0\0a\0\0", b"\xff\xff"),
    "no name": row(b"\x02a", b""),
    "no file": row(file_key("a"), b""),
    "a directory": own_row("a", 0, "", SPAN, type=DIRECTORY),
    "another's file": own_row("a", 5, "deflate 0", SPAN, user_data=None),
    "no decoding": own_row("a", 5, "", SPAN),
    "a decoding of another kind": own_row("a", 5, "pieces", SPAN),
    "an empty file with bytes": own_row("a", 0, "", SPAN),
    "an empty file that is decoded": own_row("a", 0, "deflate 0", SPAN),
    "a span in the head": own_row("a", 5, "deflate 0", (0, 4000)),
    "a span that is reversed": own_row("a", 5, "deflate 0", (HEAD_BYTES + 20, HEAD_BYTES)),
    "a span beyond the data": own_row("a", 5, "deflate 0", (HEAD_BYTES, 1 << 40)),
    "two that share bytes": own_row("a", 5, "deflate 0", SPAN) + own_row("b", 5, "deflate 0", SPAN),
    "zeros of no record": own_row("a", 1 << 60, f"deflate 0 0+{1 << 40}", SPAN),
}


@pytest.mark.parametrize("what", BAD_ROWS)
def test_a_table_that_makes_no_sense(what: str) -> None:
    data, _ = packed(("file", b"content" * 100))
    with pytest.raises(Corrupt) as caught:
        list(DATABUNDLE.reader(BytesArchive(sealed(data, BAD_ROWS[what]), "chunk-7")).entries())
    assert caught.value.chunk == "chunk-7"
    assert "\n" not in str(caught.value)


def test_a_shard_whose_metadata_are_elsewhere() -> None:
    data = encode_head(3, metadata_at_eof=False) + bytes(8192)
    with pytest.raises(Unsupported, match="is missing"):
        DATABUNDLE.reader(BytesArchive(data))


@pytest.mark.parametrize("data", [b"", b"daB", b"other" * 100, b"daBS" + b"\xff" * 50, b"daBS" + bytes(8)])
def test_other_files_are_refused_as_shards(data: bytes) -> None:
    with pytest.raises((Corrupt, Unsupported)):
        DATABUNDLE.reader(BytesArchive(data))


def test_without_protobuf_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    messages.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf.any_pb2", None)
    with pytest.raises(NotInstalled, match=r"google\.protobuf.*\.\[databundle\]"):
        DATABUNDLE.writer(ListSink())
    monkeypatch.undo()
    messages.cache_clear()
    assert DATABUNDLE.sniff(b"daBS", b"")


def test_the_writer_is_used_in_order() -> None:
    writer = DATABUNDLE.writer(ListSink())
    writer.open("a", None)
    with pytest.raises(InvalidInput):
        writer.add("b", b"", None)

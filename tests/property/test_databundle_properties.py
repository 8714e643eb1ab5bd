"""Properties of DataBundle: files are read back with every compression; any bytes are read or refused."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cafcat.errors import CafcatError, Corrupt
from cafcat.formats.databundle import DATABUNDLE
from cafcat.formats.databundle.bundles.bundle import Bundle, NewBundleFile, write_bundle
from cafcat.formats.databundle.decoding import decoding_text, parse_decoding
from cafcat.formats.databundle.layout import LARGE_BYTES, RECORD_BYTES, file_key, parse_file_key, trailer
from cafcat.model import MAX_PATH_BYTES, Entry
from cafcat.support.checksums import crc32c
from cafcat.testing.formats import BytesArchive, ListSink, pack

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda path: len(path.encode()) <= MAX_PATH_BYTES
)
# Sizes near the ends of records. A file may begin at the start of a record.
SIZES = st.integers(0, 300) | st.builds(
    lambda records, more: max(0, records * RECORD_BYTES + more), st.integers(0, 5), st.integers(-3, 3)
)
PATTERNS = {
    "zeros": b"\0",
    "one letter": b"a",
    "text": b"text of a file\n",
    "all bytes": bytes(range(256)),
    "a record of zeros, and more": b"\0" * RECORD_BYTES + b"x",
}
# By name, because hypothesis warns about large values in its reports.
CONTENTS = st.binary(max_size=200) | st.builds(
    lambda name, size: (PATTERNS[name] * (size // len(PATTERNS[name]) + 1))[:size],
    st.sampled_from(sorted(PATTERNS)),
    SIZES,
)
FILES = st.lists(st.tuples(PATHS, CONTENTS, st.none() | INT64), unique_by=lambda file: file[0], max_size=6)


@given(FILES)
@settings(max_examples=60)
def test_packed_files_are_read_back(files: list[tuple[str, bytes, int | None]]) -> None:
    data, entries, finished = pack(DATABUNDLE, files)
    reader = DATABUNDLE.reader(BytesArchive(data))
    assert list(reader.entries()) == entries
    assert finished.size_bytes == len(data)
    position = 0
    for (path, content, modified_ns), entry in zip(files, entries, strict=True):
        assert (entry.path, entry.modified_ns, entry.size_bytes) == (path, modified_ns, len(content))
        assert b"".join(reader.open(entry)) == content
        assert position <= entry.start_byte
        position = entry.end_byte
        span = data[entry.start_byte : entry.end_byte]
        if entry.decoding is None:
            assert span == content == b""
        else:
            assert b"".join(DATABUNDLE.decode(iter([span]), entry)) == content


@given(FILES, st.integers(1, 2 * LARGE_BYTES))
@settings(max_examples=30)
def test_content_in_blocks_gives_the_same_chunk(
    files: list[tuple[str, bytes, int | None]], block_bytes: int
) -> None:
    sink = ListSink()
    writer = DATABUNDLE.writer(sink)
    for path, content, modified_ns in files:
        predicted = writer.size_if_finalized(path, len(content))
        entry = writer.open(path, modified_ns)
        block_bytes = max(block_bytes, len(content) // 1000)
        for at in range(0, len(content), block_bytes):
            entry.write(content[at : at + block_bytes])
            assert writer.size_if_finalized() <= predicted
        entry.close()
        assert writer.size_if_finalized() <= predicted
    writer.finalize()
    assert sink.data == pack(DATABUNDLE, files)[0]


@given(st.binary(min_size=1000, max_size=5000), st.integers(1, 400))
@settings(max_examples=30)
def test_incompressible_content_is_not_larger_than_predicted(noise: bytes, times: int) -> None:
    writer = DATABUNDLE.writer(sink := ListSink())
    content = noise[:times] + noise * (times // 10)
    predicted = writer.size_if_finalized("file", len(content))
    writer.add("file", content, None)
    writer.finalize()
    assert len(sink.data) <= predicted


@given(PATHS)
def test_every_path_is_parsed_from_its_key(path: str) -> None:
    assert parse_file_key(file_key(path)) == path


@given(st.binary(max_size=40))
@example(b"\x02a\0\0b\0\0")
def test_any_key_is_parsed_as_a_path_or_not(key: bytes) -> None:
    try:
        path = parse_file_key(key)
    except ValueError:
        return
    assert path is None or file_key(path) == key


@given(st.text("deflate 0123456789+,", max_size=40) | st.builds("deflate {}".format, st.text("0123456789+, ")))
def test_any_text_is_parsed_as_a_decoding_or_not(text: str) -> None:
    decoding = parse_decoding(text)
    assert decoding is None or decoding_text(*decoding) == text


@given(st.data(), st.sampled_from([b"text " * 300, bytes(range(256)) * 2000, bytes(3 * RECORD_BYTES) + b"x"]))
@settings(max_examples=60)
def test_damaged_span_is_refused_or_has_its_size(draw: st.DataObject, content: bytes) -> None:
    data, entries, _ = pack(DATABUNDLE, [("before", b"b" * 100, 1), ("file", content, 1)])
    entry = entries[1]
    span = bytearray(data[entry.start_byte : entry.end_byte])
    for _ in range(draw.draw(st.integers(1, 3))):
        span[draw.draw(st.integers(0, len(span) - 1))] ^= draw.draw(st.integers(1, 255))
    try:
        found = b"".join(DATABUNDLE.decode(iter([bytes(span)]), entry))
    except Corrupt as error:
        assert "\n" not in str(error)  # noqa: PT017 - any other error fails the test
    else:
        assert len(found) == len(content)


@given(st.binary(max_size=300), st.booleans())
def test_any_table_is_read_or_refused(rows: bytes, whole: bool) -> None:
    data = pack(DATABUNDLE, [("file", b"x", 1)])[0][:8192]
    archive = BytesArchive(data + rows + (trailer(8192, crc32c(rows)) if whole else b""))
    try:
        entries = list(DATABUNDLE.reader(archive).entries())
    except CafcatError as error:
        assert error.kind in ("corrupt", "unsupported")  # noqa: PT017 - any other error fails the test
    else:
        assert whole
        assert all(0 <= entry.start_byte <= entry.end_byte <= 8192 for entry in entries)


@given(st.binary(max_size=400), st.integers(0, 1 << 40), st.text("deflate 0123456789+,", max_size=20))
def test_any_span_is_decoded_or_refused(span: bytes, size_bytes: int, decoding: str) -> None:
    runs = parse_decoding(decoding)
    if runs is not None and runs.zero_records > 100:
        return  # a table may have that many rows of zeros
    try:
        list(DATABUNDLE.decode(iter([span]), Entry("file", 4096, 4096 + len(span), 0, None, size_bytes, decoding)))
    except CafcatError as error:
        assert error.kind in ("corrupt", "unsupported")  # noqa: PT017 - any other error fails the test


@pytest.mark.parametrize("compression", ["none", "snappy", "zlib"])
@given(files=FILES, shards=st.integers(1, 4))
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_bundles_are_read_back(compression: str, files: list[tuple[str, bytes, int | None]], shards: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        new = [NewBundleFile(path, content) for path, content, _ in files]
        write_bundle(Path(folder), new, shards=shards, workers=2, compression=compression)
        with Bundle(Path(folder)) as bundle:
            assert {file.path: b"".join(bundle.open(file.path)) for file in bundle.files()} == {
                path: content for path, content, _ in files
            }
            assert bundle.verify(2).problems == []

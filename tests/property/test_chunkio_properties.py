"""Properties of ChunkIO: records are read back; damage loses records and adds none; any bytes are handled."""

from hypothesis import example, given
from hypothesis import strategies as st

from cafcat.errors import CafcatError
from cafcat.formats.chunkio import CHUNKIO
from cafcat.formats.chunkio.metering import INTERVAL_BYTES, insert_meters, is_position, strip_meters, write_meter
from cafcat.formats.chunkio.pieces import PIECE_BYTES, content_bytes_of, pieces_end
from cafcat.formats.chunkio.records import Record
from cafcat.formats.chunkio.records_reader import RecordReader
from cafcat.formats.chunkio.records_writer import RecordWriter, record_bytes
from cafcat.formats.chunkio.time_index import records_after, ticks_of_record
from cafcat.model import MAX_PATH_BYTES, Entry
from cafcat.testing.formats import BytesArchive, ListSink, pack

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda path: len(path.encode()) <= MAX_PATH_BYTES
)
# Sizes near the positions of meters and the ends of pieces.
SIZES = st.integers(0, 200) | st.integers(65_300, 65_600) | st.integers(130_900, 131_200)
CONTENTS = st.binary(max_size=100) | st.builds(
    lambda size, seed: bytes([seed, 7, 1]) * (size // 3), SIZES, st.integers(1, 255)
)
FILES = st.lists(st.tuples(PATHS, CONTENTS, st.none() | INT64), unique_by=lambda file: file[0], max_size=8)
RECORDS = st.lists(st.tuples(st.binary(min_size=16, max_size=16), CONTENTS), max_size=8)


def write(records: list[tuple[bytes, bytes]]) -> bytes:
    sink = ListSink()
    writer = RecordWriter(sink)
    for user_data, content in records:
        writer.write(user_data, content)
    return sink.data


def one_by_one(reader: RecordReader) -> list[Record]:
    found = []
    record = reader.first()
    while record is not None:
        found.append(record)
        record = reader.first(record.begin + 1)
    return found


def damaged(data: bytes, draw: st.DataObject) -> bytes:
    """Return damaged bytes: changed, cut, with moved parts, or with valid meters and headers at wrong positions."""
    whole = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(whole)) | st.sampled_from(range(0, len(whole) + 1, INTERVAL_BYTES)))
        kind = draw.draw(st.sampled_from(["change", "zero", "cut", "copy", "meter", "remove"]))
        if kind == "change" and at < len(whole):
            whole[at] ^= draw.draw(st.integers(1, 255))
        elif kind == "zero":
            end = min(len(whole), at + draw.draw(st.integers(1, 300)))
            whole[at:end] = bytes(end - at)
        elif kind == "cut":
            del whole[at:]
        elif kind == "copy":
            start = draw.draw(st.integers(0, len(whole)))
            part = whole[start : start + draw.draw(st.integers(1, 70_000))]
            whole[at : at + len(part)] = part
        elif kind == "meter" and at + 16 <= len(whole):
            whole[at : at + 16] = write_meter(draw.draw(st.integers(0, len(whole))))
        elif kind == "remove":
            del whole[at : at + draw.draw(st.integers(1, 70_000))]
    return bytes(whole)


@given(RECORDS)
def test_records_are_read_back(records: list[tuple[bytes, bytes]]) -> None:
    reader = RecordReader(BytesArchive(write(records)))
    found = list(reader.records())
    assert [(record.user_data, reader.content(record)) for record in found] == records
    assert one_by_one(reader) == found
    assert all(is_position(record.begin) and is_position(record.end) for record in found)


@given(FILES)
def test_packed_files_are_read_back(files: list[tuple[str, bytes, int | None]]) -> None:
    data, entries, finished = pack(CHUNKIO, files)
    reader = CHUNKIO.reader(BytesArchive(data))
    assert list(reader.entries()) == entries
    assert finished.size_bytes == len(data)
    for (path, content, modified_ns), entry in zip(files, entries, strict=True):
        assert (entry.path, entry.modified_ns, entry.size_bytes) == (path, modified_ns, len(content))
        assert b"".join(reader.open(entry)) == content
        span = data[entry.start_byte : entry.end_byte]
        assert b"".join(CHUNKIO.decode(iter([span]), entry)) == content


@given(RECORDS, st.lists(st.integers(0, 8), max_size=3))
def test_file_with_several_writers_is_read(records: list[tuple[bytes, bytes]], breaks: list[int]) -> None:
    sink = ListSink()
    writer = RecordWriter(sink)
    for n, (user_data, content) in enumerate(records):
        if n in breaks:
            writer = RecordWriter(sink, len(sink.data))
        writer.write(user_data, content)
    reader = RecordReader(BytesArchive(sink.data))
    assert [(record.user_data, reader.content(record)) for record in reader.records()] == records


@given(RECORDS.filter(bool), st.integers(0, 7), st.binary(min_size=1, max_size=30), st.integers(0, 1 << 18))
def test_overwritten_bytes_lose_records_and_add_none(
    records: list[tuple[bytes, bytes]], embedded: int, noise: bytes, at: int
) -> None:
    inner = write(records)
    records[embedded % len(records)] = (b"embeds the others", inner[INTERVAL_BYTES // 2 :] + inner)
    records = [(user_data[:16], content) for user_data, content in records]
    whole = write(records)
    real = set(RecordReader(BytesArchive(whole)).records())
    at %= len(whole)
    data = whole[:at] + noise + whole[at + len(noise) :]
    reader = RecordReader(BytesArchive(data))
    found = list(reader.records())
    assert set(found) <= real
    assert one_by_one(reader) == found


@given(RECORDS, st.data())
def test_damaged_records_are_listed_in_order(records: list[tuple[bytes, bytes]], draw: st.DataObject) -> None:
    """Both ways of listing end, and give records in order. They may differ for damage that needs a forger."""
    data = damaged(write(records), draw)
    reader = RecordReader(BytesArchive(data))
    found = list(reader.records())
    assert [record.begin for record in found] == sorted({record.begin for record in found})
    for record in found:
        content = reader.content(record)
        assert content is None or len(content) == record.content_bytes
    begins = [record.begin for record in one_by_one(RecordReader(BytesArchive(data)))]
    assert begins == sorted(set(begins))
    times = list(records_after(RecordReader(BytesArchive(data)), 1 << 62))
    assert all(ticks_of_record(record) < 1 << 63 for record in times)
    last = reader.last()
    assert last is None or last.begin < len(data)


@given(FILES, st.data())
def test_damaged_chunk_is_read_or_refused(files: list[tuple[str, bytes, int | None]], draw: st.DataObject) -> None:
    whole, entries, _ = pack(CHUNKIO, files)
    check_chunk(
        damaged(whole, draw), {entry.path: content for entry, (_, content, _) in zip(entries, files, strict=True)}
    )


def check_chunk(data: bytes, contents: dict[str, bytes]) -> None:
    """Check that entries are within the file, and that readable contents are the original ones, if known."""
    try:
        reader = CHUNKIO.reader(BytesArchive(data))
        entries = list(reader.entries())
    except CafcatError as error:
        assert "\n" not in str(error)  # noqa: PT017 - any other error fails the test
        return
    for entry in entries:
        assert 0 <= entry.start_byte < entry.end_byte <= len(data)
        try:
            content = b"".join(reader.open(entry))
        except CafcatError as error:
            assert "\n" not in str(error)  # noqa: PT017 - any other error fails the test
        else:
            assert len(content) == entry.size_bytes
            assert contents.get(entry.path, content) == content


@given(st.binary(max_size=300))
@example(b"romkatv/chunkio\n")
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    assert one_by_one(RecordReader(BytesArchive(data))) == list(RecordReader(BytesArchive(data)).records())
    check_chunk(data, {})


@given(
    st.binary(max_size=100),
    st.integers(-5, 200),
    st.integers(-5, 200),
    st.sampled_from(["pieces", "record", "deflate"]),
)
def test_any_span_is_decoded_or_refused(data: bytes, start: int, end: int, decoding: str) -> None:
    for blocks in ([data], [data[:5], data[5:]]):
        try:
            list(CHUNKIO.decode(iter(blocks), Entry("a", start, end, None, None, 5, decoding)))
        except CafcatError as error:
            assert "\n" not in str(error)  # noqa: PT017 - any other error fails the test


POSITIONS = st.integers(0, 1 << 50).filter(is_position)


@given(POSITIONS, st.integers(0, 5 * PIECE_BYTES) | st.integers(0, 1 << 45))
def test_content_size_follows_from_the_span(begin: int, size_bytes: int) -> None:
    assert content_bytes_of(begin, pieces_end(begin, size_bytes)) == size_bytes


@given(POSITIONS, CONTENTS, st.integers(1, 70_000))
def test_meters_are_inserted_and_stripped(begin: int, content: bytes, block_bytes: int) -> None:
    data = b"".join(insert_meters(begin, begin, content))
    parts = [strip_meters(begin + at, data[at : at + block_bytes]) for at in range(0, len(data), block_bytes)]
    assert b"".join(parts) == content
    record = b"".join(record_bytes(begin, bytes(16), content))
    assert pieces_end(begin, len(content)) == begin + len(record)

"""Seeds, damage and checks of CARs, ChunkIO files, clp-s archives and DataBundle chunks."""

import hashlib
from collections.abc import Iterator
from random import Random

from cafcat.errors import CafcatError, Corrupt, Unsupported
from cafcat.formats.base import Format, Reader
from cafcat.formats.car import CAR, CarReader
from cafcat.formats.chunkio import CHUNKIO
from cafcat.formats.chunkio.metering import INTERVAL_BYTES, is_position, write_meter
from cafcat.formats.chunkio.records import HEADER_BYTES, pack_header
from cafcat.formats.chunkio.records_reader import RecordReader
from cafcat.formats.chunkio.records_writer import RecordWriter
from cafcat.formats.chunkio.time_index import records_after
from cafcat.formats.clp import CLP
from cafcat.formats.clp.frames import compress_frame
from cafcat.formats.clp.header import Header
from cafcat.formats.clp.metadata import Packet
from cafcat.formats.clp.packing import pack_head
from cafcat.formats.clp.reader import ClpReader
from cafcat.formats.databundle import DATABUNDLE
from cafcat.formats.databundle.bundles.compression import METHODS
from cafcat.formats.databundle.layout import RECORD_BYTES, TRAILER_BYTES, parse_trailer, trailer
from cafcat.model import Entry
from cafcat.support.checksums import crc32c
from cafcat.testing.formats import BytesArchive, ListSink, pack
from tests.fuzz.mutations import damaged_bytes
from tests.worlds.archives import car_archives as car
from tests.worlds.archives.bundles import inline_shard
from tests.worlds.archives.vector_files import VECTORS

__all__ = [
    "Wrong",
    "car_files",
    "chunkio_files",
    "clp_archives",
    "damaged_car",
    "damaged_chunkio",
    "damaged_databundle",
    "databundle_chunks",
    "read_car",
    "read_chunkio",
    "read_clp",
    "read_databundle",
]

_MOST_SEED_BYTES = 200_000


class Wrong(Exception):
    """A reader gave an impossible result."""


def car_files() -> list[tuple[str, bytes]]:
    """Return CARs written by cafcat, by hand, and, if available, by the original programs."""
    random = Random(6)
    files = [(f"folder{n % 3}/file{n}", random.randbytes(random.randrange(3000)), n) for n in range(20)]
    made = [("own", pack(CAR, files)[0]), ("own, empty", pack(CAR, [])[0]), ("by hand", _tree())]
    return [*made, ("by hand, v2", car.v2(_tree(), padding=20)), *_originals("car/*/*.car")]


def _tree() -> bytes:
    """Return a CAR with folders, a file of several blocks, and an inline file."""
    leaves = [car.leaf(bytes([n]) * (100 + n)) for n in range(5)]
    large = car.file(sum(len(data) for _, data in leaves), *(cid for cid, _ in leaves))
    small = car.file(6, inline=b"inline")
    folder = car.directory((b"large", large[0]), (b"leaf", leaves[0][0]))
    root = car.directory((b"folder", folder[0]), (b"small", small[0]), ("ü".encode(), folder[0]))
    return car.v1([root[0]], [root, folder, large, small, *leaves])


def chunkio_files() -> list[tuple[str, bytes]]:
    """Return files written by cafcat, by its record writer, and, if available, by the original program."""
    random = Random(6)
    own = [(f"file{n}", random.randbytes(random.randrange(9000)), n) for n in range(20)]
    sink = ListSink()
    writer = RecordWriter(sink)
    for n in range(40):
        writer.write(n.to_bytes(16, "little"), random.randbytes(random.randrange(6000)))
        if n == 20:
            writer.resume(len(sink.data) - 5)
    made = [("own", pack(CHUNKIO, own)[0]), ("own, empty", pack(CHUNKIO, [])[0]), ("records", sink.data)]
    return made + _originals("chunkio/*.cio")


def clp_archives() -> list[tuple[str, bytes]]:
    """Return archives made of parts, and, if available, by the original program."""
    sections = {"/schema_tree": compress_frame(b"tree"), "/var.dict": bytes(8), "/0": compress_frame(b"a") * 3}
    sizes = [(name, len(content)) for name, content in sections.items()]
    head = pack_head(
        Header((0, 3, 1), 5, 0, 0), [Packet(0, b"\x80"), Packet(2, bytes(16)), Packet(3, b"\x90")], sizes
    )
    return [("made", head + b"".join(sections.values())), *_originals("clp/*.clp")]


def databundle_chunks() -> list[tuple[str, bytes]]:
    """Return chunks, and shards of bundles with rows in their heads. There is no other program that writes them."""
    random = Random(9)
    small = [(f"folder/file{n}", random.randbytes(random.randrange(300)) * 3, n) for n in range(30)]
    zeros = bytes(RECORD_BYTES * 4) + b"x" * 20
    large = [("small", b"x", 1), ("zeros", zeros, None), ("noise", random.randbytes(100_000) + zeros, 3)]
    named = [("own", small), ("own, empty", []), ("own, large", large), ("own, twice", [*small[:3], *small[:2]])]
    own = [(name, pack(DATABUNDLE, files)[0]) for name, files in named]
    plain = [(path, content) for path, content, _ in small + large]
    return own + [(f"shard, {name}", inline_shard(plain, name, record_bytes=5000, padding=[9])) for name in METHODS]


def _originals(pattern: str) -> list[tuple[str, bytes]]:
    found = [(path.name, path.read_bytes()) for path in sorted(VECTORS.glob(pattern))]
    return [(name, data) for name, data in found if 0 < len(data) <= _MOST_SEED_BYTES]


def damaged_car(random: Random, data: bytes, other: bytes) -> bytes:
    """Damage bytes anywhere; or damage some blocks, with the right CIDs for their new bytes."""
    if random.random() < 0.5:
        return damaged_bytes(random, data, other)
    try:
        sections = list(CarReader(BytesArchive(data)).sections())
    except CafcatError:
        sections = []
    if not sections:
        return damaged_bytes(random, data, other)
    whole = data
    for _ in range(random.randrange(1, 4)):
        section = random.choice(sections)
        block = data[section.data_start : section.data_end]
        changed = damaged_bytes(random, block or b"?", other)[: max(1, len(block))].ljust(len(block), b"\0")
        # Replace all mentions of the CID, too, so that only the content of the block is wrong.
        whole = whole.replace(block, changed) if block else whole
        whole = whole.replace(section.cid[-32:], hashlib.sha256(changed).digest())
    return whole


def damaged_chunkio(random: Random, data: bytes, other: bytes) -> bytes:
    """Damage bytes anywhere; or write meters and headers that are valid by themselves but wrong in their place."""
    if random.random() < 0.5:
        return damaged_bytes(random, data, other)
    whole = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        begin = random.randrange(0, len(whole) + 1)
        if random.random() < 0.5:
            _overwrite(whole, begin - begin % INTERVAL_BYTES, write_meter(random.randrange(len(whole) + 1)))
        else:
            _overwrite(whole, *_forged_header(random, bytes(whole)))
    return bytes(whole)


def damaged_databundle(random: Random, data: bytes, other: bytes) -> bytes:
    """Damage bytes anywhere; or damage the table and correct its checksum."""
    place = parse_trailer(data[-TRAILER_BYTES:], len(data))
    if place is None or random.random() < 0.4:
        return damaged_bytes(random, data, other)
    start = place.table_start
    rows = damaged_bytes(random, data[start:-TRAILER_BYTES], other[-2000:])
    return data[:start] + rows + trailer(start, crc32c(rows))


def _overwrite(whole: bytearray, at: int, part: bytes) -> None:
    end = min(len(whole), at + len(part))
    whole[at:end] = part[: end - at]


def _forged_header(random: Random, data: bytes) -> tuple[int, bytes]:
    """Return the position of a header, and a header with another length or other user data."""
    records = list(RecordReader(BytesArchive(data)).records())
    if not records:
        return 16, pack_header(bytes(16), random.randrange(1 << 31), bytes(8))
    record = random.choice(records)
    size = random.choice([0, 1, record.content_bytes, random.randrange(len(data) + 1), random.randrange(1 << 31)])
    user_data = random.choice([record.user_data, random.choice(records).user_data])
    at = record.begin if record.begin % INTERVAL_BYTES else record.begin + 16
    return at, pack_header(user_data, size, record.content_hash)


def read_car(data: bytes) -> str:
    """Read a CAR as files, as blocks, and through its index; check the results, and return the outcome."""
    try:
        reader = CarReader(BytesArchive(data))
        for section in reader.sections():
            _check(0 < section.data_start <= section.data_end <= len(data), "a block is outside the file")
        _check(all(record.offset >= 0 for record in reader.index()), "a negative offset")
        blocks = list(CarReader(BytesArchive(data), by_cid=True).entries())
        _check(len({entry.path for entry in blocks}) == len(blocks), "a CID is repeated")
    except CafcatError as error:
        _refusal(error)
    return _read(CAR, data)


def read_chunkio(data: bytes) -> str:
    """Read the records in order, by time and backwards; read the archive; check the results."""
    reader = RecordReader(BytesArchive(data))
    records = list(reader.records())
    begins = [record.begin for record in records]
    _check(begins == sorted(set(begins)), "records are not in order")
    for record in records:
        _check(is_position(record.begin) and is_position(record.end), "a record has an impossible position")
        _check(record.begin + HEADER_BYTES <= len(data), "a header is outside the file")
        content = reader.content(record)
        _check(content is None or len(content) == record.content_bytes, "content has the wrong size")
    _check(
        all(record.begin < len(data) for record in records_after(reader, 10)),
        "a found record is outside the file",
    )
    last = reader.last()
    _check(last is None or last.begin < len(data), "the last record is outside the file")
    return _read(CHUNKIO, data)


def read_clp(data: bytes) -> str:
    """Read all metadata and sections of a clp-s archive, and check them."""
    try:
        reader = ClpReader(BytesArchive(data))
        _check(reader.header.compressed_size <= len(data), "the size exceeds the file")
        _check(isinstance(reader.info, dict) and reader.timestamps is not None, "no metadata")
        _check(all(log.start <= log.end for log in reader.ranges), "a range ends before it begins")
        _check(len(reader.units().units) == len(reader.ranges), "the number of log files is wrong")
    except CafcatError as error:
        return _refusal(error)
    return _read(CLP, data)


def read_databundle(data: bytes) -> str:
    """Read a shard as an archive, and check that the files of a chunk do not share bytes."""
    try:
        entries = list(DATABUNDLE.reader(BytesArchive(data)).entries())
    except CafcatError as error:
        return _refusal(error)
    if parse_trailer(data[-TRAILER_BYTES:], len(data)) is not None:
        ends = [0, *(entry.end_byte for entry in entries)]
        _check(all(end <= entry.start_byte for end, entry in zip(ends, entries, strict=False)), "files share bytes")
    return _read(DATABUNDLE, data)


def _read(archive_format: Format, data: bytes) -> str:
    try:
        reader = archive_format.reader(BytesArchive(data))
        entries = list(reader.entries())
    except CafcatError as error:
        return _refusal(error)
    _check(len({entry.path for entry in entries}) == len(entries), "a path is repeated")
    return "whole" if all(list(_contents(reader, entries, data))) else "listed"


def _contents(reader: Reader, entries: list[Entry], data: bytes) -> Iterator[bool]:
    for entry in entries:
        _check(0 <= entry.start_byte <= entry.end_byte <= len(data), "an entry is outside the file")
        try:
            size_bytes = sum(map(len, reader.open(entry)))
        except (Corrupt, Unsupported) as error:
            yield _refusal(error) == "whole"
        else:
            _check(size_bytes == entry.size_bytes, "content has the wrong size")
            yield True


def _refusal(error: CafcatError) -> str:
    _check(error.kind in ("corrupt", "unsupported"), f"not an error for damage: {error!r}")
    _check("\n" not in str(error) and len(str(error)) < 20_000, "the message is too long or has several lines")
    return error.kind


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Wrong(otherwise)

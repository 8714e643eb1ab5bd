"""clp-s archives: reassembled byte for byte, if clp-s wrote them; and refused archives."""

import hashlib
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgpack
import pytest

import cafcat
from cafcat.errors import CafcatError, Corrupt, InvalidInput, Unsupported
from cafcat.formats.clp import CLP
from cafcat.formats.clp.annotating import LogSource, annotate
from cafcat.formats.clp.frames import FrameDecompressor, compress_frame, zstd
from cafcat.formats.clp.header import HEADER_BYTES, Header, parse_header
from cafcat.formats.clp.metadata import (
    ANNOTATION,
    Packet,
    TimestampRange,
    pack_packets,
    pack_section_table,
    parse_packets,
    parse_ranges,
    parse_section_table,
    parse_timestamps,
)
from cafcat.formats.clp.packing import pack_head, reassemble
from cafcat.formats.clp.program import query_below
from cafcat.formats.clp.reader import ClpReader
from cafcat.support.checksums import crc32c
from cafcat.testing.formats import BytesArchive, ListSink
from tests.worlds.archives import vector_files
from tests.worlds.archives.log_archives import SECTIONS

VECTORS = vector_files.VECTORS / "clp"
NAMES = ["v0.3.1_multi_stream", "v0.3.1_no_timestamp", "v0.3.1_two_files", "v0.5.0_two_files"]
BAD = {
    "bad_bad_magic": "does not begin with",
    "bad_trunc": "it has 2,704 bytes, by its header it should have 2,754",
}
MIB = 1 << 20


def vector(name: str) -> tuple[bytes, Any]:
    return (VECTORS / f"{name}.clp").read_bytes(), json.loads((VECTORS / f"{name}.clp.json").read_text())


def reader_of(data: bytes) -> ClpReader:
    return ClpReader(BytesArchive(data, "chunk-7"))


def made(sections: dict[str, bytes], packets: Iterable[Packet] = (), **header: Any) -> bytes:
    sizes = [(name, len(content)) for name, content in sections.items()]
    head = pack_head(Header((0, 4, 1), 1000, 0, 0)._replace(**header), list(packets), sizes)
    return head + b"".join(sections.values())


def with_metadata(raw: bytes, sections: bytes = b"", *, frame: bytes | None = None) -> bytes:
    """Return an archive with any decompressed metadata."""
    frame = compress_frame(raw) if frame is None else frame
    size = HEADER_BYTES + len(frame) + len(sections)
    return Header((0, 3, 1), 5, size, len(frame)).pack() + frame + sections


def read_all(data: bytes) -> dict[str, bytes]:
    reader = reader_of(data)
    return {entry.path: b"".join(reader.open(entry)) for entry in reader.entries()}


def test_every_vector_is_tested_here() -> None:
    assert {path.stem for path in VECTORS.glob("*.clp")} == {*NAMES, *BAD}


@pytest.mark.parametrize("name", NAMES)
def test_header_and_sections_of_the_vectors_are_as_expected(name: str) -> None:
    data, expected = vector(name)
    assert CLP.sniff(data[:64], data[-64:])
    reader = reader_of(data)
    header = reader.header
    assert ".".join(map(str, header.version)) == expected["version"]
    assert header.uncompressed_size == expected["uncompressed_size"]
    assert header.compressed_size == expected["compressed_size"] == len(data)
    assert header.metadata_bytes == expected["metadata_section_size"]
    assert reader.header.files_start == HEADER_BYTES + header.metadata_bytes
    assert reader.index_span == (reader.header.compressed_size,) * 2
    for entry, said in zip(reader.entries(), expected["files"], strict=True):
        assert (entry.path, entry.start_byte, entry.size_bytes) == (said["name"], said["abs"], said["size"])
        assert entry.decoding is None
        content = b"".join(reader.open(entry))
        assert content == data[entry.start_byte : entry.end_byte]
        assert hashlib.sha256(content).hexdigest() == said["sha256"]


@pytest.mark.parametrize("name", NAMES)
def test_metadata_of_the_vectors_is_as_expected(name: str) -> None:
    data, expected = vector(name)
    reader = reader_of(data)
    said = {packet["type"]: packet["content"] for packet in expected["packets"]}
    assert [(packet.kind, len(packet.content)) for packet in reader.packets] == [
        (packet["type"], packet["size"]) for packet in expected["packets"]
    ]
    assert reader.info == said[0]
    assert reader.packets[2].content.hex() == said[2]
    assert [(log.start, log.end, log.fields) for log in reader.ranges] == [
        (r["s"], r["e"], r["f"]) for r in said[3]
    ]
    assert [log.file_name for log in reader.ranges] == [r["f"]["_filename"] for r in said[3]]


def test_times_of_the_vectors() -> None:
    first = TimestampRange("timestamp", (3,), 1704067200000, 1704067299000)
    found = reader_of(vector("v0.3.1_two_files")[0]).timestamps
    assert found.ranges[0]._replace(end=first.end) == first
    assert found.patterns == {0: "%Y-%m-%dT%H:%M:%S.%3"}
    assert reader_of(vector("v0.5.0_two_files")[0]).timestamps.ranges == found.ranges
    (floats,) = reader_of(vector("v0.3.1_multi_stream")[0]).timestamps.ranges
    assert isinstance(floats.begin, float)
    assert isinstance(floats.end, float)
    assert floats.begin < floats.end
    assert reader_of(vector("v0.3.1_no_timestamp")[0]).timestamps == ((), {})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("trailing", [b"", b"ignored by the original"])
def test_an_archive_is_put_together_again_byte_for_byte(name: str, trailing: bytes) -> None:
    data, _ = vector(name)
    reader = reader_of(data + trailing)
    assert b"".join(reassemble(reader)) == data
    sections = [(entry.path, entry.size_bytes) for entry in reader.entries()]
    packets = [packet for packet in reader.packets if packet.kind != 1]
    head = pack_head(Header(reader.header.version, reader.header.uncompressed_size, 0, 0), packets, sections)
    anew = head + data[reader.header.files_start :]
    assert reader_of(anew).packets == reader.packets
    assert read_all(anew) == read_all(data)


@pytest.mark.parametrize("name", BAD)
def test_damaged_vectors_are_refused(name: str) -> None:
    with pytest.raises(Corrupt, match=BAD[name]) as caught:
        reader_of((VECTORS / f"{name}.clp").read_bytes())
    assert caught.value.chunk == "chunk-7"


@pytest.mark.parametrize("name", NAMES)
def test_vectors_that_are_cut_or_changed_anywhere_are_read_or_refused(name: str) -> None:
    data, _ = vector(name)
    for at in {*range(900), *range(900, len(data), 97)}:
        if at < len(data):
            with pytest.raises(CafcatError):
                reader_of(data[:at])
            check_any(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])


def check_any(data: bytes) -> None:
    """Check that an archive is read within its bytes, or refused in one line."""
    try:
        reader = reader_of(data)
        for entry in reader.entries():
            assert 0 <= entry.start_byte <= entry.end_byte <= len(data)
            assert len(b"".join(reader.open(entry))) == entry.size_bytes
        assert (reader.info, reader.ranges, reader.timestamps) is not None
    except CafcatError as error:
        assert isinstance(error, Corrupt | Unsupported)  # noqa: PT017 - any other error fails the test
        assert "\n" not in str(error)  # noqa: PT017


def test_archive_made_by_the_tests() -> None:
    data = made(SECTIONS, [Packet(0, msgpack.packb({"num_segments": 1})), Packet(200, b"unknown")])
    reader = reader_of(data)
    assert [packet.kind for packet in reader.packets] == [0, 1, 200]
    assert read_all(data) == SECTIONS
    assert (reader.info, reader.ranges, reader.timestamps) == ({"num_segments": 1}, [], ((), {}))
    assert b"".join(reassemble(reader)) == data
    assert read_all(made({})) == {}


def test_metadata_keep_their_compression() -> None:
    raw = pack_packets([Packet(0, msgpack.packb({"n": "n" * 1000})), Packet(1, pack_section_table([("/0", 0)]))])
    stored = b"\x28\xb5\x2f\xfd\x00\x58" + (len(raw) << 3 | 1).to_bytes(3, "little") + raw
    assert stored != compress_frame(raw)
    data = with_metadata(raw, frame=stored)
    assert b"".join(reassemble(reader_of(data))) == data
    sections = [("/0", 5)]
    changed = pack_head(reader_of(data).header, reader_of(data).packets, sections, stored)
    assert [entry.size_bytes for entry in reader_of(changed + b"12345").entries()] == [5]


def test_padding_keeps_its_bytes() -> None:
    data = made(SECTIONS, padding=bytes(range(32)), padding_end=77)
    assert b"".join(reassemble(reader_of(data))) == data


def test_an_empty_run_of_frames_is_legal() -> None:
    sections = {**SECTIONS, "/0": b"", "/1": b""}
    assert read_all(made(sections)) == sections


@pytest.mark.parametrize(
    ("at", "new", "error", "words"),
    [
        (0, b"PK", Corrupt, "fd 2f c5 30"),
        (6, b"\x06", Unsupported, "version 0.6.1"),
        (7, b"\x01", Unsupported, "version 1.4.1"),
        (60, b"\x01", Unsupported, "compression type 1"),
        (16, bytes(8), Corrupt, "exceeds the archive"),
        (16, b"\xff" * 8, Corrupt, "not a complete"),
        (56, b"\xff" * 4, Corrupt, "exceeds the archive"),
    ],
)
def test_headers_that_are_refused(at: int, new: bytes, error: type[CafcatError], words: str) -> None:
    data = made(SECTIONS)
    with pytest.raises(error, match=words) as caught:
        reader_of(data[:at] + new + data[at + len(new) :])
    assert caught.value.chunk == "chunk-7"


def test_every_header_that_is_too_short() -> None:
    data = made(SECTIONS)
    for size_bytes in range(HEADER_BYTES):
        with pytest.raises(Corrupt):
            reader_of(data[:size_bytes])
    header = Header((0, 5, 0), 1, 200, 100, bytes(range(32)), 9)
    assert parse_header(header.pack(), 200, "x") == header


TABLE = pack_section_table([("/0", 0)])
BAD_METADATA = {
    "empty": (b"", "0 zstd|too early"),
    "packets are cut": (b"\x01\x01\xff\0\0\0data", "too early"),
    "packets go on": (pack_packets([Packet(1, TABLE)]) + b"!", "1 more bytes"),
    "no table": (pack_packets([Packet(0, b"\x80")]), "no table of sections"),
    "two tables": (pack_packets([Packet(1, TABLE)] * 2), "2 packets of type 1"),
    "no msgpack": (pack_packets([Packet(1, b"\xc1")]), "msgpack"),
    "msgpack is cut": (pack_packets([Packet(1, TABLE[:-1])]), "msgpack"),
    "msgpack goes on": (pack_packets([Packet(1, TABLE + b"\0")]), "msgpack"),
    "msgpack is deep": (pack_packets([Packet(1, b"\x91" * 100_000 + b"\0")]), "msgpack"),
    "msgpack is large": (pack_packets([Packet(1, bytes(4 * MIB + 1))]), "bytes, but at most"),
    "a list": (pack_packets([Packet(1, b"\x90")]), "no list of files"),
    "a time": (pack_packets([Packet(1, b"\xd6\xff\0\0\0\1")]), "type Timestamp"),
    "bytes": (pack_packets([Packet(1, msgpack.packb({"files": [b"x"]}))]), "type bytes"),
}


@pytest.mark.parametrize("name", BAD_METADATA)
def test_metadata_that_is_refused(name: str) -> None:
    raw, words = BAD_METADATA[name]
    with pytest.raises((Corrupt, Unsupported), match=words) as caught:
        reader_of(with_metadata(raw))
    assert caught.value.chunk == "chunk-7"
    assert "\n" not in str(caught.value)


def test_metadata_that_is_no_single_frame() -> None:
    raw = pack_packets([Packet(1, TABLE)])
    assert reader_of(with_metadata(raw)).packets == [Packet(1, TABLE)]
    frame = compress_frame(raw)
    for bad in (frame[:-1], frame + frame, frame + compress_frame(b""), frame + b"!", b"", b"no zstd"):
        with pytest.raises(Corrupt, match="metadata"):
            reader_of(with_metadata(raw, frame=bad))


def test_a_bomb_is_stopped() -> None:
    bomb = compress_frame(bytes(100 * MIB))
    with pytest.raises(Corrupt, match="more than 8,388,608 bytes"):
        reader_of(with_metadata(b"", frame=bomb))
    with pytest.raises(Unsupported, match="at most 8,388,608"):
        reader_of(with_metadata(b"", frame=bytes(9 * MIB)))


def test_blocks_of_frames_are_small_and_tiny_frames_are_counted() -> None:
    run = FrameDecompressor(1 << 40)
    bomb = compress_frame(bytes(5 * MIB))
    sizes = [len(block) for block in run.write(bomb + bomb[:-1])]
    assert sum(sizes) == run.output_bytes <= 10 * MIB
    assert max(sizes) <= MIB
    assert (run.frames, run.at_frame_end) == (1, False)
    with pytest.raises(ValueError, match="incomplete"):
        run.finish()
    many = FrameDecompressor(0)
    assert list(many.write(compress_frame(b"") * 20_000)) == []
    assert many.frames == 20_000
    many.frames = 1_000_000
    with pytest.raises(ValueError, match="1,000,000 zstd frames"):
        list(many.write(compress_frame(b"")))


def test_window_that_needs_much_memory_is_refused() -> None:
    for log, refused in ((23, False), (25, False), (26, True), (27, True)):
        frame = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: log})
        reader = reader_of(made({"/0": frame.compress(bytes(MIB)) + frame.flush()}))
        (entry,) = reader.entries()
        if refused:
            with pytest.raises(Corrupt, match="memory"):
                list(reader.open(entry))
        else:
            assert list(reader.open(entry))


def table(*items: object) -> bytes:
    return msgpack.packb({"files": list(items)})


BAD_TABLES = {
    "name missing": (table({"o": 0}), "no valid name"),
    "name empty": (table({"n": "", "o": 0}), "no valid name"),
    "name no string": (table({"n": 5, "o": 0}), "no valid name"),
    "name with NUL": (table({"n": "a\0b", "o": 0}), "no valid name"),
    "name too long": (table({"n": "a" * 2049, "o": 0}), "no valid name"),
    "no map": (table(5), "no valid name"),
    "offset missing": (table({"n": "a"}), "no valid offset"),
    "offset true": (table({"n": "a", "o": True}), "no valid offset"),
    "offset float": (table({"n": "a", "o": 0.0}), "no valid offset"),
    "offset negative": (table({"n": "a", "o": -1}), "no valid offset"),
    "offset huge": (table({"n": "a", "o": (1 << 64) - 1}), "no valid offset"),
    "first is not 0": (table({"n": "a", "o": 1}), "does not begin"),
    "none": (table(), "does not begin"),
    "twice": (table({"n": "a", "o": 0}, {"n": "a", "o": 1}), "a section twice"),
    "back": (table({"n": "a", "o": 0}, {"n": "b", "o": 5}, {"n": "c", "o": 4}), "ends before"),
    "beyond": (table({"n": "a", "o": 0}, {"n": "b", "o": 11}), "exceeds the archive"),
    "files no list": (msgpack.packb({"files": {}}), "no list"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_tables_of_sections_that_are_refused(name: str) -> None:
    content, words = BAD_TABLES[name]
    with pytest.raises(Corrupt, match=words):
        parse_section_table(content, 10, "x")
    with pytest.raises(Corrupt, match=words):
        reader_of(with_metadata(pack_packets([Packet(1, content)]), bytes(10)))


def test_the_table_of_sections() -> None:
    content = table({"n": "/a", "o": 0}, {"n": "/b", "o": 4}, {"n": "/c", "o": 4, "x": None})
    assert parse_section_table(content, 10, "x") == [("/a", 0, 4), ("/b", 4, 4), ("/c", 4, 10)]
    assert parse_section_table(pack_section_table([("/a", 4), ("/b", 0)]), 4, "x") == [("/a", 0, 4), ("/b", 4, 4)]
    assert parse_section_table(table(), 0, "x") == []


BAD_SECTIONS = [
    ("/schema_tree", b"", "0 zstd frames, expected 1"),
    ("/schema_tree", compress_frame(b"a") * 2, "2 zstd frames, expected 1"),
    ("/schema_ids", compress_frame(b"a")[:-1], "incomplete"),
    ("/table_metadata", b"no zstd frame", "not compressed by zstd"),
    ("/var.dict", b"", "0 bytes are too few"),
    ("/var.dict", bytes(7), "7 bytes are too few"),
    ("/var.dict", bytes(8) + compress_frame(b"a"), "1 zstd frames, expected 0"),
    ("/log.dict", b"\1" + bytes(7), "0 zstd frames, expected 1"),
    ("/log.dict", b"\1" + bytes(7) + compress_frame(b"a") * 2, "2 zstd frames"),
    ("/0", compress_frame(b"a") + compress_frame(b"b")[:-1], "incomplete"),
    ("/0", compress_frame(b"a") + b"!", "not"),
    ("/17", b"no zstd frame", "not compressed"),
]


@pytest.mark.parametrize(("name", "content", "words"), BAD_SECTIONS)
def test_damaged_sections_are_listed_and_not_read_to_their_end(name: str, content: bytes, words: str) -> None:
    reader = reader_of(made({name: content, "/other": b"anything"}))
    damaged, other = reader.entries()
    with pytest.raises(Corrupt, match=words) as caught:
        list(reader.open(damaged))
    assert (caught.value.path, caught.value.chunk, caught.value.byte) == (name, "chunk-7", damaged.start_byte)
    assert b"".join(reader.open(other)) == b"anything"


def test_large_sections_come_in_blocks() -> None:
    content = compress_frame(bytes(3 * MIB)) * 3 + compress_frame(hashlib.shake_128(b"").digest(3 * MIB))
    reader = reader_of(made({"/0": content}))
    blocks = list(reader.open(next(reader.entries())))
    assert b"".join(blocks) == content
    assert max(map(len, blocks)) <= MIB


def timestamps(*parts: object) -> bytes:
    """Return packed parts: u64 for int, length and bytes for text, and bytes unchanged."""
    raw = b""
    for part in parts:
        if isinstance(part, int):
            raw += struct.pack("<Q", part)
        elif isinstance(part, str):
            raw += struct.pack("<Q", len(part.encode())) + part.encode()
        else:
            raw += part  # type: ignore[operator]
    return raw


def test_timestamps() -> None:
    ids, epoch, floats = struct.pack("<2i", 3, -4), struct.pack("<2q", -5, 6), struct.pack("<2d", 0.5, 1.5)
    raw = timestamps(3, "a", 2, ids, 1, epoch, "é", 0, 2, floats, "", 0, 0, 1, 7, "%Y")
    found = parse_timestamps(raw, "x")
    assert found.ranges == (("a", (3, -4), -5, 6), ("é", (), 0.5, 1.5), ("", (), None, None))
    assert found.patterns == {7: "%Y"}
    for size_bytes in range(len(raw)):
        with pytest.raises(Corrupt):
            parse_timestamps(raw[:size_bytes], "x")
    bad = [
        raw + b"!",
        timestamps(1 << 60),
        timestamps(1, "a", 1 << 60, bytes(99)),
        timestamps(1, "a", 0, 3, bytes(99)),
    ]
    bad += [timestamps(1, 1, b"\xff", 0, 0, 0), timestamps(0, 1 << 63)]
    for content in bad:
        with pytest.raises(Corrupt, match="timestamp dictionary"):
            parse_timestamps(content, "x")


def test_ranges() -> None:
    fields = {"_filename": "a.log", "other": [1, None]}
    assert parse_ranges(msgpack.packb([{"s": 0, "e": 5, "f": fields}]), "x") == [("a.log", 0, 5, fields)]
    assert parse_ranges(msgpack.packb([{"s": 0, "e": 0, "f": {"_filename": 7}}]), "x")[0].file_name is None
    bad: list[object] = [{}, [5], [{}], [{"s": 5, "e": 4, "f": {}}], [{"s": -1, "e": 4, "f": {}}]]
    bad += [[{"s": 0, "e": 4}], [{"s": 0, "e": 4, "f": []}], [{"s": False, "e": 4, "f": {}}]]
    for content in bad:
        with pytest.raises(Corrupt, match="range"):
            parse_ranges(msgpack.packb(content), "x")


def test_metadata_of_other_kinds_are_read_on_demand() -> None:
    reader = reader_of(made(SECTIONS, [Packet(0, b"\x90"), Packet(2, b"short"), Packet(3, b"\xc1")]))
    assert len(list(reader.entries())) == 7
    for name in ("info", "timestamps", "ranges"):
        with pytest.raises(Corrupt):
            getattr(reader, name)


def test_packets() -> None:
    packets = [Packet(kind, bytes(kind)) for kind in range(255)]
    assert parse_packets(pack_packets(packets), "x") == packets
    with pytest.raises(InvalidInput, match="256 metadata packets"):
        pack_head(Header((0, 3, 1), 0, 0, 0), [Packet(7, b"")] * 255, [])


def test_files_cannot_be_packed() -> None:
    with pytest.raises(Unsupported, match="only the program clp-s"):
        CLP.writer(ListSink())
    (entry,) = reader_of(made({"/0": b""})).entries()
    with pytest.raises(Unsupported):
        CLP.decode(iter([b""]), entry)


def test_opening_is_one_read_or_two() -> None:
    archive = BytesArchive(made(SECTIONS))
    list(ClpReader(archive).entries())
    assert len(archive.reads) == 1
    many = [
        {"s": n, "e": n, "f": {"_filename": hashlib.sha256(bytes([n % 256])).hexdigest() * n}} for n in range(200)
    ]
    archive = BytesArchive(with_metadata(pack_packets([Packet(1, TABLE), Packet(3, msgpack.packb(many))])))
    assert len(ClpReader(archive).ranges) == 200
    assert len(archive.reads) <= 2


def noted(checksums: list[Any], sources: list[Any]) -> Packet:
    return Packet(ANNOTATION, msgpack.packb({"crc32c": checksums, "sources": sources}))


def ranges_of(*names: Any) -> Packet:
    return Packet(
        3, msgpack.packb([{"s": n, "e": n + 1, "f": {"_filename": name}} for n, name in enumerate(names)])
    )


def test_annotated_archive_is_read_and_reassembled() -> None:
    data = made(SECTIONS, [ranges_of("a", "b/c")])
    sources = [LogSource("a", 5, 1_700_000_000_000_000_001), LogSource("b/c", 0, -1)]
    archive = annotate(reader_of(data), sources, "x")
    whole = b"".join(archive.blocks)
    reader = reader_of(whole)
    assert list(reader.entries()) == archive.entries
    assert [entry.crc32c for entry in archive.entries] == [crc32c(content) for content in SECTIONS.values()]
    assert {entry.path: b"".join(reader.open(entry)) for entry in reader.entries()} == SECTIONS
    assert reader.units() == archive.units
    assert [unit[0:3] + unit[4:] for unit in archive.units.units] == [
        ("a", 0, 1, 5, 1_700_000_000_000_000_001), ("b/c", 1, 2, 0, -1),
    ]  # fmt: skip
    assert b"".join(reassemble(reader)) == whole


def test_open_and_convert_refuse_a_section_with_another_checksum_than_cafcat_noted(tmp_path: Path) -> None:
    archive = annotate(reader_of(made(SECTIONS, [ranges_of("a")])), [LogSource("a", 5, 0)], "x")
    data = bytearray(b"".join(archive.blocks))
    (entry,) = (entry for entry in archive.entries if entry.path == "/log.dict")
    data[entry.start_byte] ^= 1  # the number of a dictionary's entries, which zstd does not protect
    with pytest.raises(Corrupt, match="CRC-32C") as caught:
        list(reader_of(bytes(data)).open(entry))
    assert (caught.value.path, caught.value.byte) == ("/log.dict", entry.start_byte)
    damaged, converted = tmp_path / "damaged.clp", tmp_path / "converted.clp"
    damaged.write_bytes(data)
    with pytest.raises(Corrupt, match="CRC-32C"):
        cafcat.convert(damaged, converted)
    assert not converted.exists()


def test_annotation_of_other_log_files_is_refused() -> None:
    reader = reader_of(made(SECTIONS, [ranges_of("a")]))
    for names in ([], ["b"], ["a", "a"]):
        with pytest.raises(Corrupt, match="exactly the log files"):
            annotate(reader, [LogSource(name, 0, 0) for name in names], "x")


@pytest.mark.parametrize(
    "packet",
    [
        noted([0] * 6, [[0, 0]]),
        noted([0] * 7, []),
        noted([0] * 6 + [1 << 32], [[0, 0]]),
        noted([True] * 7, [[0, 0]]),
        noted([0] * 7, [[0]]),
        noted([0] * 7, [[-1, 0]]),
        noted([0] * 7, [[0, 1 << 63]]),
        Packet(ANNOTATION, b""),
        Packet(ANNOTATION, msgpack.packb([])),
    ],
)
def test_notes_that_make_no_sense(packet: Packet) -> None:
    reader = reader_of(made(SECTIONS, [ranges_of("a"), packet]))
    with pytest.raises(Corrupt):
        reader.units()


@pytest.mark.parametrize("name", ["a\0b", "n" * 2049])
def test_names_of_log_files_that_a_catalog_cannot_hold(name: str) -> None:
    with pytest.raises(Unsupported, match="the catalog cannot store"):
        reader_of(made(SECTIONS, [ranges_of(name)])).units()


@pytest.mark.parametrize("value", [float("nan"), "a\0b"])
def test_fields_of_log_files_that_a_catalog_cannot_hold(value: Any) -> None:
    packet = Packet(3, msgpack.packb([{"s": 0, "e": 1, "f": {"_filename": "a", "x": [value]}}]))
    with pytest.raises(Unsupported):
        reader_of(made(SECTIONS, [packet])).units()


def test_a_query_below_a_folder() -> None:
    name = r"a\"b\\c\*d\?e"
    assert (
        query_below('a"b\\c*d?e', "x: y OR z: 1")
        == f'($_filename: "{name}" OR $_filename: "{name}/*") AND (x: y OR z: 1)'
    )

"""Properties of clp-s archives: parts are read back and reassembled; any bytes are read or refused."""

from hypothesis import given
from hypothesis import strategies as st

from cafcat.errors import CafcatError, Corrupt, Unsupported
from cafcat.formats.clp.frames import compress_frame
from cafcat.formats.clp.header import MAGIC, Header
from cafcat.formats.clp.metadata import Packet, pack_packets, parse_ranges, parse_section_table, parse_timestamps
from cafcat.formats.clp.packing import pack_head, reassemble
from cafcat.formats.clp.reader import ClpReader
from cafcat.testing.formats import BytesArchive

FRAMES = st.lists(st.binary(max_size=50).map(compress_frame), max_size=3).map(b"".join)
NAMES = st.sampled_from(["/0", "/1", "/x", "/é"])
PACKETS = st.lists(st.builds(Packet, st.sampled_from([0, 2, 3, 4, 255]), st.binary(max_size=50)), max_size=4)
NOTED_TOO = st.lists(st.builds(Packet, st.sampled_from([2, 3, 202]), st.binary(max_size=50)), max_size=3)
HEADERS = st.builds(
    Header,
    st.tuples(st.just(0), st.integers(3, 5), st.integers(0, 65_535)),
    st.integers(0, (1 << 64) - 1),
    st.just(0),
    st.just(0),
    st.binary(min_size=32, max_size=32),
    st.integers(0, 65_535),
)


def check(data: bytes) -> None:
    try:
        reader = ClpReader(BytesArchive(data))
        for entry in reader.entries():
            assert 0 <= entry.start_byte <= entry.end_byte <= len(data)
            assert len(b"".join(reader.open(entry))) == entry.size_bytes
        assert (reader.info, reader.ranges, reader.timestamps, reader.units()) is not None
    except CafcatError as error:
        assert isinstance(error, Corrupt | Unsupported)  # noqa: PT017 - any other error fails the test
        assert "\n" not in str(error)  # noqa: PT017


@given(HEADERS, PACKETS, st.dictionaries(NAMES, FRAMES), st.binary(max_size=20))
def test_parts_are_read_back_and_reassembled(
    header: Header, packets: list[Packet], sections: dict[str, bytes], rest: bytes
) -> None:
    head = pack_head(header, packets, [(name, len(content)) for name, content in sections.items()])
    data = head + b"".join(sections.values())
    reader = ClpReader(BytesArchive(data + rest))
    assert reader.header == header._replace(compressed_size=len(data), metadata_bytes=reader.header.metadata_bytes)
    assert [packet for packet in reader.packets if packet.kind != 1] == packets
    assert {entry.path: b"".join(reader.open(entry)) for entry in reader.entries()} == sections
    assert b"".join(reassemble(reader)) == data


@given(HEADERS, PACKETS | NOTED_TOO, st.dictionaries(NAMES, FRAMES, min_size=1), st.data())
def test_damaged_archive_is_read_or_refused(
    header: Header, packets: list[Packet], sections: dict[str, bytes], draw: st.DataObject
) -> None:
    sizes = [(name, len(content)) for name, content in sections.items()]
    data = bytearray(pack_head(header, packets, sizes) + b"".join(sections.values()))
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(data) - 1))
        data[at : at + draw.draw(st.integers(0, 3))] = draw.draw(st.binary(max_size=3))
        data = data or bytearray(1)
    check(bytes(data))


@given(st.binary(max_size=200), st.binary(max_size=300))
def test_any_metadata_is_read_or_refused(raw: bytes, rest: bytes) -> None:
    check(raw)
    check(MAGIC + raw)
    for metadata in (compress_frame(raw), compress_frame(pack_packets([Packet(1, raw)])), raw):
        header = Header((0, 3, 1), 0, 64 + len(metadata) + len(rest), len(metadata))
        check(header.pack() + metadata + rest)


@given(st.binary(max_size=200), st.integers(0, 100))
def test_any_packet_is_parsed_or_refused(raw: bytes, files_bytes: int) -> None:
    parsers = (
        parse_timestamps,
        parse_ranges,
        lambda content, name: parse_section_table(content, files_bytes, name),
    )
    for parse in parsers:
        try:
            parse(raw, "x")
        except Corrupt as error:
            assert "\n" not in str(error)  # noqa: PT017 - any other error fails the test

"""Reassembles the container of a clp-s archive from its parts."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cafcat.errors import InvalidInput
from cafcat.formats.clp.frames import FrameDecompressor, compress_frame
from cafcat.formats.clp.header import HEADER_BYTES, Header
from cafcat.formats.clp.metadata import (
    ARCHIVE_FILES,
    MAX_METADATA_BYTES,
    Packet,
    pack_packets,
    pack_section_table,
)
from cafcat.formats.clp.reader import ClpReader

__all__ = ["pack_head", "reassemble"]

_MAX_PACKETS: Final = 255
"""Largest number of packets: it is stored in one byte."""


def pack_head(
    header: Header,
    packets: Sequence[Packet],
    sections: Iterable[tuple[str, int]],
    frame: bytes = b"",
) -> bytes:
    """Return the header and the metadata of an archive.

    The table of sections is packed again, at its place among the packets, or after the first one. The two sizes in
    the header are computed.

    Args:
        header: the header; its sizes are replaced.
        packets: the packets of the metadata.
        sections: name and size in bytes of each section that will follow.
        frame: compressed metadata of another archive. It is used unchanged if its content is the same, so that the
            result does not depend on the version of zstd.

    Raises:
        InvalidInput: there are more than 255 packets.
    """
    section_list = list(sections)
    table = Packet(ARCHIVE_FILES, pack_section_table(section_list))
    if all(packet.kind != ARCHIVE_FILES for packet in packets):
        packets = [*packets[:1], table, *packets[1:]]
    if len(packets) > _MAX_PACKETS:
        raise InvalidInput(f"an archive cannot have {len(packets)} metadata packets: the limit is {_MAX_PACKETS}")
    raw = pack_packets(table if packet.kind == ARCHIVE_FILES else packet for packet in packets)
    metadata = frame if _decompresses_to(frame, raw) else compress_frame(raw)
    size = HEADER_BYTES + len(metadata) + sum(size_bytes for _, size_bytes in section_list)
    return header._replace(compressed_size=size, metadata_bytes=len(metadata)).pack() + metadata


def _decompresses_to(frame: bytes, raw: bytes) -> bool:
    """Return True if the frame decompresses to exactly these bytes."""
    decompressor = FrameDecompressor(MAX_METADATA_BYTES)
    try:
        found = b"".join(decompressor.write(frame))
    except ValueError:
        return False
    return found == raw and decompressor.frames == 1 and decompressor.at_frame_end


def reassemble(reader: ClpReader) -> Iterator[bytes]:
    """Return a byte-for-byte copy of the archive, in blocks of at most 1 MiB except its head.

    Bytes after the end of the archive are left out. Each section is checked.

    Raises:
        Corrupt: a section is damaged.
    """
    entries = list(reader.entries())
    sections = [(entry.path, entry.size_bytes) for entry in entries]
    yield pack_head(reader.header, reader.packets, sections, reader.metadata_frame)
    for entry in entries:
        yield from reader.open(entry)

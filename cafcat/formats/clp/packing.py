"""Writes the container of a clp-s archive, and reassembles an archive from its parts."""

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
    """Return the bytes of a clp-s archive before its sections: the header, and the compressed metadata.

    The packet with the table of sections is made from `sections`. It replaces such a packet in `packets`; if there
    is none, it is inserted after the first packet. In the header, `compressed_size` (of the whole archive) and
    `metadata_bytes` are computed; all other values are kept.

    Args:
        header: the header; its `compressed_size` and `metadata_bytes` are ignored.
        packets: the packets of the metadata.
        sections: name and size in bytes of each section that will follow.
        frame: compressed metadata of another archive, or b"". It is used unchanged if it decompresses to the new
            metadata, so that the result does not depend on the version of zstd.

    Raises:
        InvalidInput: the metadata would have more than 255 packets.
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
    """Return True if `frame` is one zstd frame that decompresses to exactly the bytes `raw`."""
    decompressor = FrameDecompressor(MAX_METADATA_BYTES)
    try:
        found = b"".join(decompressor.write(frame))
    except ValueError:
        return False
    return found == raw and decompressor.frames == 1 and decompressor.at_frame_end


def reassemble(reader: ClpReader) -> Iterator[bytes]:
    """Yield a copy of an archive: header and metadata as one block, then the sections in blocks of at most 1 MiB.

    The copy is identical if the archive has the table of sections as clp-s writes it. Bytes beyond the archive size
    that the header states are left out. Each section is checked as `ClpReader.open` does.

    Raises:
        Corrupt: a section, or the annotation by cafcat, is damaged.
        Unsupported: the annotation has more than 4 MiB.
    """
    entries = list(reader.entries())
    sections = [(entry.path, entry.size_bytes) for entry in entries]
    yield pack_head(reader.header, reader.packets, sections, reader.metadata_frame)
    for entry in entries:
        yield from reader.open(entry)

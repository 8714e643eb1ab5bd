"""Putting the container of a clp-s archive together again, from its parts."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cafcat.errors import InvalidInput
from cafcat.formats.clp.frames import FrameRun, compressed
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

_MOST_PACKETS: Final = 255


def pack_head(
    header: Header,
    packets: Sequence[Packet],
    sections: Iterable[tuple[str, int]],
    frame: bytes = b"",
) -> bytes:
    """Header and metadata of an archive; its sections, whose names and sizes in bytes these are, follow. The packet
    with the table of sections is made anew, at its place among the packets, or after the first; of the header, the
    two sizes of the archive.

    frame: of the metadata, as another archive has it: taken as it is if it says the same, so that the result does
    not depend on the version of zstd. Raises InvalidInput for more than 255 packets.
    """
    listed = list(sections)
    table = Packet(ARCHIVE_FILES, pack_section_table(listed))
    if all(packet.kind != ARCHIVE_FILES for packet in packets):
        packets = [*packets[:1], table, *packets[1:]]
    if len(packets) > _MOST_PACKETS:
        raise InvalidInput(
            f"an archive cannot have {len(packets)} packets of metadata: {_MOST_PACKETS} are the most"
        )
    raw = pack_packets(table if packet.kind == ARCHIVE_FILES else packet for packet in packets)
    metadata = frame if _says(frame, raw) else compressed(raw)
    size = HEADER_BYTES + len(metadata) + sum(size_bytes for _, size_bytes in listed)
    return header._replace(compressed_size=size, metadata_bytes=len(metadata)).pack() + metadata


def _says(frame: bytes, raw: bytes) -> bool:
    """Whether a frame decompresses to these bytes."""
    run = FrameRun(MAX_METADATA_BYTES, InvalidInput)
    try:
        found = b"".join(run.write(frame))
    except InvalidInput:
        return False
    return found == raw and run.frames == 1 and run.is_between


def reassemble(reader: ClpReader) -> Iterator[bytes]:
    """The archive again, in blocks of at most 1 MiB but for its head: byte for byte the same, without what may
    follow its end. Each section is checked. Raises Corrupt."""
    entries = list(reader.entries())
    sections = [(entry.path, entry.size_bytes) for entry in entries]
    yield pack_head(reader.header, reader.packets, sections, reader.metadata_frame)
    for entry in entries:
        yield from reader.open(entry)

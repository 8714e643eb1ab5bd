"""What cafcat adds to an archive that it had clp-s make, so that a catalog can be made from the archive alone:
checksums of its sections, sizes and times of its log files, in a packet of metadata that clp-s goes over."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cafcat.errors import Corrupt
from cafcat.formats.clp.metadata import Noted, pack_noted
from cafcat.formats.clp.packing import pack_head
from cafcat.formats.clp.reader import ClpReader
from cafcat.formats.clp.units import units_of
from cafcat.model import ArchiveUnits, Entry
from cafcat.support.checksums import crc32c

__all__ = ["LogSource", "NotedArchive", "noted_archive"]


class LogSource(NamedTuple):
    """A log file that went in: its name there, size in bytes, modification time in nanoseconds since 1970."""

    file_name: str
    size_bytes: int
    modified_ns: int


class NotedArchive(NamedTuple):
    """The archive with what was added: its bytes, to be taken once, its sections and its log files."""

    blocks: Iterator[bytes]
    entries: Sequence[Entry]
    units: ArchiveUnits


def noted_archive(reader: ClpReader, sources: Sequence[LogSource], name: str) -> NotedArchive:
    """name: of the archive. Reads all sections; their bytes are read once more with `blocks`. Raises Corrupt if it
    is not an archive of just these log files."""
    names = [source.file_name for source in sources]
    if [found.file_name for found in reader.ranges] != names:
        raise Corrupt("the archive has other log files than it was made of", chunk=name)
    entries = [entry._replace(crc32c=_checksum(reader, entry)) for entry in reader.entries()]
    checksums = tuple(entry.crc32c or 0 for entry in entries)
    noted = Noted(checksums, tuple((source.size_bytes, source.modified_ns) for source in sources))
    sizes = [(entry.path, entry.size_bytes) for entry in entries]
    head = pack_head(reader.header, [*reader.packets, pack_noted(noted)], sizes)
    later = len(head) - reader.header.files_start
    moved = [
        entry._replace(start_byte=entry.start_byte + later, end_byte=entry.end_byte + later) for entry in entries
    ]
    return NotedArchive(_blocks(head, reader), moved, units_of(reader.ranges, reader.timestamps, noted, name))


def _checksum(reader: ClpReader, entry: Entry) -> int:
    checksum = 0
    for block in reader.open(entry):
        checksum = crc32c(block, checksum)
    return checksum


def _blocks(head: bytes, reader: ClpReader) -> Iterator[bytes]:
    yield head
    for entry in reader.entries():
        yield from reader.open(entry)

"""Annotates archives that clp-s wrote for cafcat, so that a catalog can be rebuilt from the archive alone.

The annotation is a metadata packet that clp-s skips. It has the checksums of the sections, and the sizes and
modification times of the log files.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cafcat.errors import Corrupt
from cafcat.formats.clp.metadata import Annotation, pack_annotation
from cafcat.formats.clp.packing import pack_head
from cafcat.formats.clp.reader import ClpReader
from cafcat.formats.clp.units import units_of
from cafcat.model import ArchiveUnits, Entry
from cafcat.support.checksums import crc32c

__all__ = ["AnnotatedArchive", "LogSource", "annotate"]


class LogSource(NamedTuple):
    """A log file from which clp-s made an archive.

    Attributes:
        file_name: name of the log file in the archive.
        size_bytes: size of the log file in bytes.
        modified_ns: modification time of the log file in nanoseconds since 1970-01-01 UTC.
    """

    file_name: str
    size_bytes: int
    modified_ns: int


class AnnotatedArchive(NamedTuple):
    """A clp-s archive with cafcat's annotation.

    Attributes:
        blocks: the bytes of the archive; can be iterated once.
        entries: the sections of the archive, with their checksums, and with spans in the annotated archive.
        units: the log files in the archive, and the times of its records.
    """

    blocks: Iterator[bytes]
    entries: Sequence[Entry]
    units: ArchiveUnits


def annotate(reader: ClpReader, sources: Sequence[LogSource], name: str) -> AnnotatedArchive:
    """Add cafcat's annotation to a clp-s archive. Reads all sections; iterating over `blocks` reads them again.

    Args:
        reader: reads the archive, which must not have an annotation yet.
        sources: the log files from which the archive was made, in the order of its ranges of records.
        name: name of the archive, for messages.

    Raises:
        Corrupt: the archive does not contain exactly these log files in this order, or is damaged.
        Unsupported: a packet of the metadata has more than 4 MiB, or the catalog cannot store one of its values.
        InvalidInput: with the annotation, the metadata would have more than 255 packets.
    """
    names = [source.file_name for source in sources]
    if [found.file_name for found in reader.ranges] != names:
        raise Corrupt("the archive does not contain exactly the log files it was made from", chunk=name)
    entries = [entry._replace(crc32c=_checksum(reader, entry)) for entry in reader.entries()]
    checksums = tuple(entry.crc32c or 0 for entry in entries)
    annotation = Annotation(checksums, tuple((source.size_bytes, source.modified_ns) for source in sources))
    sizes = [(entry.path, entry.size_bytes) for entry in entries]
    head = pack_head(reader.header, [*reader.packets, pack_annotation(annotation)], sizes)
    shift = len(head) - reader.header.files_start
    shifted = [
        entry._replace(start_byte=entry.start_byte + shift, end_byte=entry.end_byte + shift) for entry in entries
    ]
    return AnnotatedArchive(
        _blocks(head, reader), shifted, units_of(reader.ranges, reader.timestamps, annotation, name)
    )


def _checksum(reader: ClpReader, entry: Entry) -> int:
    checksum = 0
    for block in reader.open(entry):
        checksum = crc32c(block, checksum)
    return checksum


def _blocks(head: bytes, reader: ClpReader) -> Iterator[bytes]:
    yield head
    for entry in reader.entries():
        yield from reader.open(entry)

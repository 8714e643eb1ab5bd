"""Reads a clp-s archive: its sections as entries, and its metadata as plain data. Logs are not decoded."""

import math
import re
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any, Final

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import RandomReader
from cafcat.formats.clp.frames import FrameDecompressor
from cafcat.formats.clp.header import HEADER_BYTES, Header, parse_header
from cafcat.formats.clp.metadata import (
    ANNOTATION,
    ARCHIVE_FILES,
    ARCHIVE_INFO,
    MAX_METADATA_BYTES,
    RANGE_INDEX,
    TIMESTAMPS,
    Annotation,
    LogRange,
    Packet,
    TimestampDictionary,
    parse_annotation,
    parse_info,
    parse_packets,
    parse_ranges,
    parse_section_table,
    parse_timestamps,
)
from cafcat.formats.clp.units import units_of
from cafcat.formats.reading import read_span, verified_content
from cafcat.model import ArchiveUnits, Entry

__all__ = ["MAX_SECTION_BYTES", "ClpReader"]

MAX_SECTION_BYTES: Final = 32 << 30
"""Largest size in bytes of a decompressed section. Sections are decompressed only to check them, which can take
some ten seconds for malicious data."""

_FIRST_BYTES: Final = 16 << 10
"""Number of bytes that are read first; most metadata fits."""
_ONE_FRAME: Final = ("/schema_tree", "/schema_ids", "/table_metadata")
"""Sections that are one zstd frame."""
_DICTIONARY: Final = re.compile(r"/[a-z]+\.dict")
"""Names of sections with a count (u64) and one zstd frame, or only a count of 0."""
_TABLES: Final = re.compile(r"/[0-9]+")
"""Names of sections with any number of zstd frames."""
_COUNT_BYTES: Final = 8


class ClpReader:
    """Reads one clp-s archive. Implements `Reader`, `HasProperties` and `UnitReader`.

    Opening an archive takes one read, or two if the metadata is large. Memory: the metadata, at most 8 MiB.

    Attributes:
        header: the header of the archive.
        metadata_frame: the compressed metadata, as the archive stores it.
        packets: the packets of the metadata.
    """

    def __init__(self, archive: RandomReader) -> None:
        """Read the header and the metadata.

        Raises:
            Corrupt: the header, the metadata or the table of sections is invalid, or the archive is incomplete.
            Unsupported: the version or the compression is unknown, the compressed metadata has more than 8 MiB, or
                the table of sections has more than 4 MiB.
        """
        self._archive = archive
        first = archive.read_at(0, min(archive.size_bytes, _FIRST_BYTES))
        self.header: Header = parse_header(first, archive.size_bytes, archive.name)
        self.metadata_frame = self._metadata_frame(first)
        self.packets: list[Packet] = parse_packets(self._metadata(), archive.name)
        table = self._packet(ARCHIVE_FILES)
        if table is None:
            raise Corrupt("the archive has no table of sections", chunk=archive.name, byte=HEADER_BYTES)
        files_bytes = self.header.compressed_size - self.header.files_start
        self._sections = parse_section_table(table, files_bytes, archive.name)

    def _metadata_frame(self, first: bytes) -> bytes:
        end = self.header.files_start
        if end - HEADER_BYTES > MAX_METADATA_BYTES:
            raise self._too_large(end - HEADER_BYTES)
        rest = b"" if end <= len(first) else self._archive.read_at(len(first), end)
        return first[HEADER_BYTES:end] + rest

    def _metadata(self) -> bytes:
        decompressor = FrameDecompressor(MAX_METADATA_BYTES)
        try:
            raw = b"".join(decompressor.write(self.metadata_frame))
            decompressor.finish()
        except ValueError as error:
            raise self._corrupt(f"the metadata is damaged: {error}") from error
        if decompressor.frames != 1:
            raise self._corrupt(f"the metadata has {decompressor.frames} zstd frames, expected 1")
        return raw

    def _too_large(self, size_bytes: int) -> Unsupported:
        message = f"the metadata has {size_bytes:,} bytes, but at most {MAX_METADATA_BYTES:,} are supported"
        return Unsupported(message, chunk=self._archive.name, byte=HEADER_BYTES)

    def _corrupt(self, message: str) -> Corrupt:
        return Corrupt(message, chunk=self._archive.name, byte=HEADER_BYTES)

    def properties(self) -> dict[str, Any]:
        """Return `version`, `log_bytes` (size of the logs), and `packets` (type and size of each metadata packet).

        If the archive has them, also return `ranges` (the records of each log file), and `timestamps` (earliest and
        latest time for each timestamp key, in the unit of the logs). A time is None if it is unknown, infinite or
        NaN.

        Raises:
            Corrupt: the metadata is damaged.
            Unsupported: a packet has more than 4 MiB.
        """
        properties: dict[str, Any] = {
            "version": ".".join(map(str, self.header.version)),
            "log_bytes": self.header.uncompressed_size,
            "packets": [{"type": packet.kind, "size_bytes": len(packet.content)} for packet in self.packets],
        }
        if self.ranges:
            properties["ranges"] = [
                {"file_name": found.file_name, "start": found.start, "end": found.end} for found in self.ranges
            ]
        if self.timestamps.ranges:
            properties["timestamps"] = [
                {"key": found.key, "begin": _finite_or_none(found.begin), "end": _finite_or_none(found.end)}
                for found in self.timestamps.ranges
            ]
        return properties

    def _packet(self, kind: int) -> bytes | None:
        """Return the content of the packet of type `kind`, or None. Raises Corrupt if there are several."""
        found = [packet.content for packet in self.packets if packet.kind == kind]
        if len(found) > 1:
            raise self._corrupt(f"the metadata has {len(found)} packets of type {kind}")
        return found[0] if found else None

    @cached_property
    def info(self) -> dict[str, Any]:
        """Facts about the archive by name, such as num_segments; empty if the archive stores none.

        Raises Corrupt if the packet is damaged, and Unsupported if it has more than 4 MiB.
        """
        content = self._packet(ARCHIVE_INFO)
        return {} if content is None else parse_info(content, self._archive.name)

    @cached_property
    def timestamps(self) -> TimestampDictionary:
        """The timestamp dictionary; empty if the archive has none. Raises Corrupt if its packet is damaged."""
        content = self._packet(TIMESTAMPS)
        return TimestampDictionary((), {}) if content is None else parse_timestamps(content, self._archive.name)

    @cached_property
    def ranges(self) -> list[LogRange]:
        """The ranges of records by log file; empty if the archive stores none.

        Raises Corrupt if the packet is damaged, and Unsupported if it has more than 4 MiB.
        """
        content = self._packet(RANGE_INDEX)
        return [] if content is None else parse_ranges(content, self._archive.name)

    @cached_property
    def annotation(self) -> Annotation | None:
        """The annotation by cafcat, or None if cafcat did not annotate the archive.

        Raises Corrupt if the annotation is damaged, or if the numbers of checksums and sections differ. Raises
        Unsupported if it has more than 4 MiB.
        """
        content = self._packet(ANNOTATION)
        annotation = None if content is None else parse_annotation(content, self._archive.name)
        if annotation is not None and len(annotation.checksums) != len(self._sections):
            found = len(annotation.checksums)
            raise self._corrupt(
                f"the annotation by cafcat has {found} checksums for {len(self._sections)} sections"
            )
        return annotation

    def units(self) -> ArchiveUnits:
        """Return the log files in the archive and the times of its records, as the catalog stores them.

        Raises:
            Corrupt: the metadata is damaged.
            Unsupported: the catalog cannot store a value, or a packet has more than 4 MiB.
        """
        return units_of(self.ranges, self.timestamps, self.annotation, self._archive.name)

    @property
    def index_span(self) -> tuple[int, int]:
        """An empty span at the end of the archive, because header and metadata precede the sections."""
        return self._archive.size_bytes, self._archive.size_bytes

    def entries(self) -> Iterator[Entry]:
        """Yield an entry for each section in order, with its name in the archive, such as "/schema_tree".

        Bytes beyond the archive size that the header states belong to no section, as in the original program. Only
        archives that cafcat annotated have checksums.

        Raises:
            Corrupt: the annotation is damaged.
            Unsupported: the annotation has more than 4 MiB.
        """
        start = self.header.files_start
        checksums = self.annotation.checksums if self.annotation else [None] * len(self._sections)
        for (section, begin, end), checksum in zip(self._sections, checksums, strict=True):
            yield Entry(section, start + begin, start + end, checksum, None)

    def open(self, entry: Entry) -> Iterator[bytes]:
        """Return the bytes of a section, unchanged, in blocks of at most 1 MiB.

        A section with a name that clp-s uses is also decompressed to check it (see `_SectionCheck`). If the archive
        is annotated, the checksum of the section is compared, too.

        Raises:
            Corrupt: the section does not have the frames that a section of this name must have, or its checksum is
                wrong. Raised after the last block at the latest.
        """
        return verified_content(self._checked_blocks(entry), entry, self._archive, "metadata")

    def _checked_blocks(self, entry: Entry) -> Iterator[bytes]:
        check = _SectionCheck(entry, self._archive.name)
        for block in read_span(self._archive, entry):
            check.write(block)
            yield block
        check.finish()


def _finite_or_none(number: float | None) -> float | None:
    """Return the number, or None for infinity and NaN, which JSON cannot represent."""
    return number if number is not None and math.isfinite(number) else None


class _SectionCheck:
    """Checks that a section has the zstd frames that a section of its name must have. Otherwise raises Corrupt.

    The name determines if the section must be one frame, a count and one frame (none if the count is 0), or any
    number of frames. Sections with other names are not checked.
    """

    def __init__(self, entry: Entry, chunk: str) -> None:
        self._path = entry.path
        self._is_dictionary = _DICTIONARY.fullmatch(entry.path) is not None
        self._is_tables = _TABLES.fullmatch(entry.path) is not None
        self._error = partial(Corrupt, path=entry.path, chunk=chunk, byte=entry.start_byte)
        self._count = b""
        self._frames = FrameDecompressor(MAX_SECTION_BYTES)

    def _damaged(self, message: str) -> Corrupt:
        return self._error(f"the section is damaged: {message}")

    def write(self, block: bytes) -> None:
        if not (self._is_dictionary or self._is_tables or self._path in _ONE_FRAME):
            return
        if self._is_dictionary and len(self._count) < _COUNT_BYTES:
            rest = _COUNT_BYTES - len(self._count)
            self._count += block[:rest]
            block = block[rest:]
        try:
            for _ in self._frames.write(block):
                pass
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def finish(self) -> None:
        if not self._frames.at_frame_end:
            raise self._damaged("the last zstd frame is incomplete")
        if self._is_dictionary:
            self._check_frames(int(any(self._count)))
            if len(self._count) < _COUNT_BYTES:
                raise self._damaged(f"{len(self._count)} bytes are too few for a count")
        elif self._path in _ONE_FRAME:
            self._check_frames(1)

    def _check_frames(self, expected: int) -> None:
        if self._frames.frames != expected:
            raise self._damaged(f"the section has {self._frames.frames} zstd frames, expected {expected}")

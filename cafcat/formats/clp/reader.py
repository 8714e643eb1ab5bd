"""Reading a clp-s archive: its sections as entries, its metadata as plain data. Logs are not decoded."""

import math
import re
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any, Final

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import RandomReader
from cafcat.formats.clp.frames import FrameRun
from cafcat.formats.clp.header import HEADER_BYTES, Header, parse_header
from cafcat.formats.clp.metadata import (
    ARCHIVE_FILES,
    ARCHIVE_INFO,
    MAX_METADATA_BYTES,
    NOTED,
    RANGE_INDEX,
    TIMESTAMPS,
    LogRange,
    Noted,
    Packet,
    TimestampDictionary,
    parse_info,
    parse_noted,
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
"""That a section may decompress to when it is checked: a bomb costs some ten seconds."""

_FIRST_BYTES: Final = 16 << 10
_ONE_FRAME: Final = ("/schema_tree", "/schema_ids", "/table_metadata")
_DICTIONARY: Final = re.compile(r"/[a-z]+\.dict")
_TABLES: Final = re.compile(r"/[0-9]+")
_COUNT_BYTES: Final = 8


class ClpReader:
    """Reads one archive. Opening it is one read, or two if the metadata is large; it is kept, at most 8 MiB."""

    def __init__(self, archive: RandomReader) -> None:
        """Raises Corrupt or Unsupported if header, metadata or the table of sections cannot be right."""
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
        run = FrameRun(MAX_METADATA_BYTES, lambda message: self._corrupt(f"the metadata is damaged: {message}"))
        raw = b"".join(run.write(self.metadata_frame))
        run.finish()
        if run.frames != 1:
            raise self._corrupt(f"the metadata is {run.frames} zstd frames, not one")
        return raw

    def _too_large(self, size_bytes: int) -> Unsupported:
        message = f"the metadata has {size_bytes:,} bytes: this cafcat reads up to {MAX_METADATA_BYTES:,}"
        return Unsupported(message, chunk=self._archive.name, byte=HEADER_BYTES)

    def _corrupt(self, message: str) -> Corrupt:
        return Corrupt(message, chunk=self._archive.name, byte=HEADER_BYTES)

    def properties(self) -> dict[str, Any]:
        """Version, bytes of the logs, packets of metadata, and as far as there are such: records by log file, and
        times by key, in the unit that the logs have. Raises Corrupt."""
        about: dict[str, Any] = {
            "version": ".".join(map(str, self.header.version)),
            "log_bytes": self.header.uncompressed_size,
            "packets": [{"type": packet.kind, "size_bytes": len(packet.content)} for packet in self.packets],
        }
        if self.ranges:
            about["ranges"] = [
                {"file_name": found.file_name, "start": found.start, "end": found.end} for found in self.ranges
            ]
        if self.timestamps.ranges:
            about["timestamps"] = [
                {"key": found.key, "begin": _finite(found.begin), "end": _finite(found.end)}
                for found in self.timestamps.ranges
            ]
        return about

    def _packet(self, kind: int) -> bytes | None:
        """The content of the one packet of a kind. Raises Corrupt if there are several."""
        found = [packet.content for packet in self.packets if packet.kind == kind]
        if len(found) > 1:
            raise self._corrupt(f"the metadata has {len(found)} packets of type {kind}")
        return found[0] if found else None

    @cached_property
    def info(self) -> dict[str, Any]:
        """What the archive says of itself, such as num_segments; empty if nothing. Raises Corrupt."""
        content = self._packet(ARCHIVE_INFO)
        return {} if content is None else parse_info(content, self._archive.name)

    @cached_property
    def timestamps(self) -> TimestampDictionary:
        """Time ranges of its records. Raises Corrupt."""
        content = self._packet(TIMESTAMPS)
        return TimestampDictionary((), {}) if content is None else parse_timestamps(content, self._archive.name)

    @cached_property
    def ranges(self) -> list[LogRange]:
        """Which of its records came from which log file: none if it does not say. Raises Corrupt."""
        content = self._packet(RANGE_INDEX)
        return [] if content is None else parse_ranges(content, self._archive.name)

    @cached_property
    def noted(self) -> Noted | None:
        """What cafcat added, of an archive that it had made. Raises Corrupt, also if it is of other sections."""
        content = self._packet(NOTED)
        noted = None if content is None else parse_noted(content, self._archive.name)
        if noted is not None and len(noted.checksums) != len(self._sections):
            raise self._corrupt(f"there are {len(noted.checksums)} checksums of {len(self._sections)} sections")
        return noted

    def units(self) -> ArchiveUnits:
        """Its log files and times, as the catalog has them. Raises Corrupt, and Unsupported for what it cannot
        hold."""
        return units_of(self.ranges, self.timestamps, self.noted, self._archive.name)

    @property
    def index_span(self) -> tuple[int, int]:
        """There is none behind the sections: header and metadata are before them."""
        return self._archive.size_bytes, self._archive.size_bytes

    def entries(self) -> Iterator[Entry]:
        """The sections in their order, by the names that the archive has for them. What follows the size that the
        header says belongs to none, as in the original. Only archives that cafcat had made have checksums."""
        start = self.header.files_start
        checksums = self.noted.checksums if self.noted else [None] * len(self._sections)
        for (section, begin, end), checksum in zip(self._sections, checksums, strict=True):
            yield Entry(section, start + begin, start + end, checksum, None)

    def open(self, entry: Entry) -> Iterator[bytes]:
        """Return the bytes of a section as they are, in blocks of at most 1 MiB.

        The section is decompressed on the side, and its checksum is compared where cafcat noted one.

        Raises:
            Corrupt: at the latest in place of the end, if the section has other frames than a section of this name,
                or another checksum.
        """
        return verified_content(self._framed(entry), entry, self._archive, "metadata")

    def _framed(self, entry: Entry) -> Iterator[bytes]:
        check = _SectionCheck(entry, self._archive.name)
        for block in read_span(self._archive, entry):
            check.write(block)
            yield block
        check.finish()


def _finite(number: float | None) -> float | None:
    """None for what JSON has no number for."""
    return number if number is not None and math.isfinite(number) else None


class _SectionCheck:
    """What a section of its name has to be: one frame; a count and one frame, or nothing if the count is 0; any
    number of frames. Sections of other names are not judged."""

    def __init__(self, entry: Entry, chunk: str) -> None:
        self._path = entry.path
        self._is_dictionary = _DICTIONARY.fullmatch(entry.path) is not None
        self._is_run = _TABLES.fullmatch(entry.path) is not None
        self._error = partial(Corrupt, path=entry.path, chunk=chunk, byte=entry.start_byte)
        self._count = b""
        self._frames = FrameRun(MAX_SECTION_BYTES, self._damaged)

    def _damaged(self, message: str) -> Corrupt:
        return self._error(f"the section is damaged: {message}")

    def write(self, block: bytes) -> None:
        if not (self._is_dictionary or self._is_run or self._path in _ONE_FRAME):
            return
        if self._is_dictionary and len(self._count) < _COUNT_BYTES:
            rest = _COUNT_BYTES - len(self._count)
            self._count += block[:rest]
            block = block[rest:]
        for _ in self._frames.write(block):
            pass

    def finish(self) -> None:
        self._frames.finish()
        if self._is_dictionary:
            self._check_frames(int(any(self._count)))
            if len(self._count) < _COUNT_BYTES:
                raise self._damaged(f"{len(self._count)} bytes are too few for its count")
        elif self._path in _ONE_FRAME:
            self._check_frames(1)

    def _check_frames(self, expected: int) -> None:
        if self._frames.frames != expected:
            raise self._damaged(f"it has {self._frames.frames} zstd frames where it should have {expected}")

"""Parses and packs the metadata of a clp-s archive: its packets, and the content of the known packets.

Sizes are bounded: 8 MiB for all packets, 4 MiB for a msgpack packet, of which Python makes at most 256 MiB of
objects. Packets of clp-s have some hundred bytes, plus about a hundred for each log file.
"""

import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, NoReturn

from cafcat.errors import Corrupt, Unsupported
from cafcat.model import MAX_PATH_BYTES

__all__ = [
    "ANNOTATION",
    "ARCHIVE_FILES",
    "ARCHIVE_INFO",
    "MAX_METADATA_BYTES",
    "RANGE_INDEX",
    "TIMESTAMPS",
    "Annotation",
    "LogRange",
    "Packet",
    "TimestampDictionary",
    "TimestampRange",
    "pack_annotation",
    "pack_packets",
    "pack_section_table",
    "parse_annotation",
    "parse_info",
    "parse_packets",
    "parse_ranges",
    "parse_section_table",
    "parse_timestamps",
]

MAX_METADATA_BYTES: Final = 8 << 20
"""Largest metadata in bytes, both compressed and decompressed."""
MAX_PACKET_BYTES: Final = 4 << 20
"""Largest msgpack packet in bytes."""

ARCHIVE_INFO: Final = 0
"""Packet type: facts about the archive."""
ARCHIVE_FILES: Final = 1
"""Packet type: the table of sections."""
TIMESTAMPS: Final = 2
"""Packet type: the timestamp dictionary."""
RANGE_INDEX: Final = 3
"""Packet type: the ranges of records by log file."""
ANNOTATION: Final = 202
"""Packet type of cafcat's annotation. clp-s skips packets of unknown types."""

_PACKET: Final = struct.Struct("<BI")


class Packet(NamedTuple):
    """One packet of a clp-s archive's metadata.

    Attributes:
        kind: type of the packet: 0 archive info, 1 table of sections, 2 timestamps, 3 ranges, 202 annotation by
            cafcat, or another.
        content: the bytes of the packet, without its type and size.
    """

    kind: int
    content: bytes


class LogRange(NamedTuple):
    """The records of a clp-s archive that came from one log file.

    A range counts records, not bytes: logs can only be extracted by decoding the whole archive.

    Attributes:
        file_name: name of the log file; None if the archive does not store it.
        start: number of the first record, counted from 0.
        end: number of the last record, plus 1.
        fields: all facts that the archive stores about the log file, including its name.
    """

    file_name: str | None
    start: int
    end: int
    fields: dict[str, Any]


class TimestampRange(NamedTuple):
    """The times that the records of a clp-s archive have under one timestamp key.

    Attributes:
        key: JSON key that holds the timestamp of a record.
        column_ids: ids of the columns in which clp-s stores the key.
        begin: earliest time, in the unit of the logs: an integer ("epoch") or a float ("double epoch"). None if the
            archive stores no times for the range.
        end: latest time, in the same unit as `begin`; None if the archive stores no times for the range.
    """

    key: str
    column_ids: tuple[int, ...]
    begin: int | float | None
    end: int | float | None


class TimestampDictionary(NamedTuple):
    """The timestamp dictionary of a clp-s archive.

    Attributes:
        ranges: the times of the records, for each timestamp key and encoding.
        patterns: the timestamp patterns by their ids.
    """

    ranges: tuple[TimestampRange, ...]
    patterns: dict[int, str]


class Annotation(NamedTuple):
    """Facts that cafcat adds to an archive that clp-s wrote for it.

    Attributes:
        checksums: CRC-32C of each section, in the order of the sections.
        sources: for the log file of each range, its size in bytes and its modification time in nanoseconds since
            1970-01-01 UTC.
    """

    checksums: tuple[int, ...]
    sources: tuple[tuple[int, int], ...]


def parse_packets(raw: bytes, name: str) -> list[Packet]:
    """Split the metadata of a clp-s archive into its packets.

    Args:
        raw: the decompressed metadata.
        name: name of the archive, for messages.

    Raises:
        Corrupt: the packets are malformed.
    """
    cursor = _Cursor(raw, name, "its metadata")
    packets = []
    for _ in range(cursor.read("<B")):
        kind, size_bytes = cursor.read_all("<BI")
        packets.append(Packet(kind, cursor.bytes(size_bytes)))
    cursor.end()
    return packets


def pack_packets(packets: Iterable[Packet]) -> bytes:
    """Return the metadata, not yet compressed, that consists of these packets: the inverse of `parse_packets`."""
    parts = [_PACKET.pack(kind, len(content)) + content for kind, content in packets]
    return bytes([len(parts)]) + b"".join(parts)


def parse_info(content: bytes, name: str) -> dict[str, Any]:
    """Decode the content of an ARCHIVE_INFO packet: facts such as the number of segments, by name.

    Args:
        content: the content of the packet.
        name: name of the archive, for messages.

    Raises:
        Corrupt: the content is not a valid msgpack map.
        Unsupported: the content has more than 4 MiB.
    """
    info = _unpack(content, name, "the archive info")
    if not isinstance(info, dict):
        raise Corrupt("the archive info is not a map", chunk=name)
    return info


def parse_section_table(content: bytes, files_bytes: int, name: str) -> list[tuple[str, int, int]]:
    """Decode the content of an ARCHIVE_FILES packet: return the name, the start and the end of each section.

    Starts and ends are in bytes, relative to the start of the first section.

    Args:
        content: the content of the packet.
        files_bytes: total size of all sections in bytes.
        name: name of the archive, for messages.

    Raises:
        Corrupt: the content is not a valid table, a name is invalid or repeated, the first section does not begin
            at 0, or a span is reversed or beyond the archive.
        Unsupported: the content has more than 4 MiB.
    """
    table = _unpack(content, name, "the table of sections")
    items = table.get("files") if isinstance(table, dict) else None
    if not isinstance(items, list):
        raise Corrupt("the table of sections has no list of files", chunk=name)
    names = [_section_name(item, name) for item in items]
    starts = [_section_start(item, name) for item in items]
    if len(set(names)) < len(names):
        raise Corrupt("the table of sections has a section twice", chunk=name)
    ends = [*starts[1:], files_bytes][: len(starts)]
    if files_bytes and starts[:1] != [0]:
        raise Corrupt("the table of sections does not begin with the first byte after the metadata", chunk=name)
    for section, start, end in zip(names, starts, ends, strict=True):
        if start > end:
            message = f"the section [{start}, {end}) ends before it starts, or exceeds the archive"
            raise Corrupt(message, path=section, chunk=name)
    return list(zip(names, starts, ends, strict=True))


def _section_name(item: Any, name: str) -> str:
    found = item.get("n") if isinstance(item, dict) else None
    if not isinstance(found, str) or not found or "\0" in found or len(found.encode()) > MAX_PATH_BYTES:
        raise Corrupt("a section has no valid name", chunk=name)
    return found


def _section_start(item: Any, name: str) -> int:
    found = item.get("o")
    if type(found) is not int or not 0 <= found < 1 << 63:
        raise Corrupt("a section has no valid offset", path=item["n"], chunk=name)
    return found


def pack_section_table(sections: Iterable[tuple[str, int]]) -> bytes:
    """Encode the content of an ARCHIVE_FILES packet for adjacent sections with these names and sizes in bytes."""
    import msgpack

    files, start = [], 0
    for section, size_bytes in sections:
        files.append({"n": section, "o": start})
        start += size_bytes
    return msgpack.packb({"files": files})  # type: ignore[no-any-return]


def parse_ranges(content: bytes, name: str) -> list[LogRange]:
    """Decode the content of a RANGE_INDEX packet: the records of each log file.

    Args:
        content: the content of the packet.
        name: name of the archive, for messages.

    Raises:
        Corrupt: the content is not a valid list of ranges.
        Unsupported: the content has more than 4 MiB.
    """
    items = _unpack(content, name, "the range index")
    if not isinstance(items, list):
        raise Corrupt("the range index is not a list", chunk=name)
    return [_log_range(item, name) for item in items]


def _log_range(item: Any, name: str) -> LogRange:
    start, end, fields = map(item.get, "sef") if isinstance(item, dict) else (None, None, None)
    if type(start) is not int or type(end) is not int or not 0 <= start <= end < 1 << 64:
        raise Corrupt("the range index has an invalid range", chunk=name)
    if not isinstance(fields, dict):
        raise Corrupt("a range of the range index has no fields", chunk=name)
    file_name = fields.get("_filename")
    return LogRange(file_name if isinstance(file_name, str) else None, start, end, fields)


def parse_annotation(content: bytes, name: str) -> Annotation:
    """Decode the content of an ANNOTATION packet, which cafcat wrote.

    Args:
        content: the content of the packet.
        name: name of the archive, for messages.

    Raises:
        Corrupt: the content is not a valid annotation.
        Unsupported: the content has more than 4 MiB.
    """
    found = _unpack(content, name, "the annotation by cafcat")
    checksums, sources = map(found.get, ("crc32c", "sources")) if isinstance(found, dict) else (None, None)
    if not isinstance(checksums, list) or not all(type(one) is int and 0 <= one < 1 << 32 for one in checksums):
        raise Corrupt("cafcat's annotation of the archive lacks valid checksums of its sections", chunk=name)
    if not isinstance(sources, list) or not all(map(_is_source, sources)):
        raise Corrupt("cafcat's annotation of the archive lacks valid sizes and times of its logs", chunk=name)
    return Annotation(tuple(checksums), tuple((size, modified) for size, modified in sources))


def _is_source(item: Any) -> bool:
    is_pair = isinstance(item, list) and len(item) == 2 and all(type(value) is int for value in item)
    return is_pair and 0 <= item[0] < 1 << 63 and -1 << 63 <= item[1] < 1 << 63


def pack_annotation(annotation: Annotation) -> Packet:
    """Return an ANNOTATION packet with these facts: the inverse of `parse_annotation`."""
    import msgpack

    return Packet(ANNOTATION, msgpack.packb({"crc32c": annotation.checksums, "sources": annotation.sources}))


def _unpack(content: bytes, name: str, label: str) -> Any:
    import msgpack

    if len(content) > MAX_PACKET_BYTES:
        message = f"{label} has {len(content):,} bytes, but at most {MAX_PACKET_BYTES:,} are supported"
        raise Unsupported(message, chunk=name)
    try:
        found = msgpack.unpackb(content)
        _check_plain(found)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError, OverflowError) as error:
        shown = " ".join(str(error).split())[:100]
        raise Corrupt(f"{label} is not valid msgpack: {shown or type(error).__name__}", chunk=name) from error
    return found


def _check_plain(value: Any) -> None:
    """Check that a decoded value has only types that JSON has, at any depth. Raises TypeError otherwise."""
    values = [value]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values.extend(value)
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)
        elif value is not None and not isinstance(value, str | int | float):
            raise TypeError(f"a value has the type {type(value).__name__}")


def parse_timestamps(content: bytes, name: str) -> TimestampDictionary:
    """Decode the content of a TIMESTAMPS packet: the timestamp dictionary.

    Args:
        content: the content of the packet.
        name: name of the archive, for messages.

    Raises:
        Corrupt: the content is malformed, too short or too long, or has an unknown encoding.
    """
    cursor = _Cursor(content, name, "the timestamp dictionary")
    ranges = tuple(_timestamp_range(cursor) for _ in range(cursor.count(24)))
    patterns = {cursor.read("<Q"): cursor.text() for _ in range(cursor.count(16))}
    cursor.end()
    return TimestampDictionary(ranges, patterns)


def _timestamp_range(cursor: "_Cursor") -> TimestampRange:
    key = cursor.text()
    column_ids = cursor.read_all(f"<{cursor.count(4)}i")
    encoding = cursor.read("<Q")
    if encoding not in _ENCODINGS:
        cursor.fail(f"has the unknown encoding {encoding}")
    begin, end = cursor.read_all(_ENCODINGS[encoding]) or (None, None)
    return TimestampRange(key, column_ids, begin, end)


_ENCODINGS: Final = {0: "<", 1: "<2q", 2: "<2d"}
"""Layout of a time range by the encoding of its times: none, integers, floats."""


class _Cursor:
    """Reads numbers and strings from binary metadata in order. Methods raise Corrupt if the data ends too early."""

    def __init__(self, data: bytes, name: str, label: str) -> None:
        self._data = data
        self._name = name
        self._label = label
        self._offset = 0

    def fail(self, message: str) -> NoReturn:
        raise Corrupt(f"{self._label} {message}", chunk=self._name)

    def bytes(self, size_bytes: int) -> bytes:
        start, self._offset = self._offset, self._offset + size_bytes
        if self._offset > len(self._data):
            self.fail(f"ends {self._offset - len(self._data):,} bytes too early")
        return self._data[start : self._offset]

    def read_all(self, layout: str) -> tuple[Any, ...]:
        """Read the next numbers, encoded with this layout of the `struct` module."""
        return struct.unpack(layout, self.bytes(struct.calcsize(layout)))

    def read(self, layout: str) -> Any:
        return self.read_all(layout)[0]

    def count(self, min_item_bytes: int) -> int:
        """Read the number of items that follow, a u64. Each item has at least `min_item_bytes` bytes.

        Raises Corrupt if the data is too short for so many items.
        """
        count: int = self.read("<Q")
        if count * min_item_bytes > len(self._data) - self._offset:
            self.fail(f"is too short for {count:,} items")
        return count

    def text(self) -> str:
        """Read a string that is preceded by its length in bytes, a u64. Raises Corrupt if it is not UTF-8."""
        raw = self.bytes(self.read("<Q"))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise Corrupt(f"{self._label} has a string that is not valid UTF-8", chunk=self._name) from error

    def end(self) -> None:
        if self._offset < len(self._data):
            self.fail(f"has {len(self._data) - self._offset:,} more bytes after its end")

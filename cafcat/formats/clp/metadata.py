"""The metadata of a clp-s archive: packets, and what those that are known say, as plain data.

Sizes are bounded: 8 MiB of packets in all, 4 MiB of one that is msgpack, which Python makes 256 MiB of at most.
Those that clp-s writes have some hundred bytes, and about a hundred for each log file.
"""

import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, NoReturn

from cafcat.errors import Corrupt, Unsupported
from cafcat.model import MAX_PATH_BYTES

__all__ = [
    "ARCHIVE_FILES",
    "ARCHIVE_INFO",
    "MAX_METADATA_BYTES",
    "NOTED",
    "RANGE_INDEX",
    "TIMESTAMPS",
    "LogRange",
    "Noted",
    "Packet",
    "TimestampDictionary",
    "TimestampRange",
    "pack_noted",
    "pack_packets",
    "pack_section_table",
    "parse_info",
    "parse_noted",
    "parse_packets",
    "parse_ranges",
    "parse_section_table",
    "parse_timestamps",
]

MAX_METADATA_BYTES: Final = 8 << 20
MAX_PACKET_BYTES: Final = 4 << 20

ARCHIVE_INFO: Final = 0
ARCHIVE_FILES: Final = 1
TIMESTAMPS: Final = 2
RANGE_INDEX: Final = 3
NOTED: Final = 202
"""Of cafcat's own: clp-s goes over packets of types that it does not know."""

_PACKET: Final = struct.Struct("<BI")


class Packet(NamedTuple):
    """One packet as it stands. kind: 0 archive info, 1 table of sections, 2 timestamps, 3 ranges, or another."""

    kind: int
    content: bytes


class LogRange(NamedTuple):
    """Records `[start, end)` of the archive, counted from 0, that came from one log file; fields: all that the
    archive says of it, its name again among them. These are no bytes: logs cannot be had without decoding all."""

    file_name: str | None
    start: int
    end: int
    fields: dict[str, Any]


class TimestampRange(NamedTuple):
    """Of one timestamp key: the ids of its columns, and its earliest and latest time, both as integer ("epoch") or
    float ("double epoch"), in the unit that the logs have; None if it has no encoding."""

    key: str
    column_ids: tuple[int, ...]
    begin: int | float | None
    end: int | float | None


class TimestampDictionary(NamedTuple):
    """Time ranges, and the patterns of timestamps by their ids."""

    ranges: tuple[TimestampRange, ...]
    patterns: dict[int, str]


class Noted(NamedTuple):
    """What cafcat adds to an archive that it had clp-s make. checksums: CRC-32C of each section; sources: size in
    bytes and modification time (nanoseconds since 1970) of the log file of each range."""

    checksums: tuple[int, ...]
    sources: tuple[tuple[int, int], ...]


def parse_packets(raw: bytes, name: str) -> list[Packet]:
    """The packets of decompressed metadata; name: of the archive. Raises Corrupt."""
    cursor = _Cursor(raw, name, "its metadata")
    packets = []
    for _ in range(cursor.take("<B")):
        kind, size_bytes = cursor.take_all("<BI")
        packets.append(Packet(kind, cursor.bytes(size_bytes)))
    cursor.end()
    return packets


def pack_packets(packets: Iterable[Packet]) -> bytes:
    """The way back."""
    parts = [_PACKET.pack(kind, len(content)) + content for kind, content in packets]
    return bytes([len(parts)]) + b"".join(parts)


def parse_info(content: bytes, name: str) -> dict[str, Any]:
    """ArchiveInfo: a map, such as the number of segments. Raises Corrupt."""
    info = _unpacked(content, name, "the archive info")
    if not isinstance(info, dict):
        raise Corrupt("the archive info is no map", chunk=name)
    return info


def parse_section_table(content: bytes, files_bytes: int, name: str) -> list[tuple[str, int, int]]:
    """Name and span of each section, in bytes from where the sections begin; files_bytes: of all of them. Raises
    Corrupt for names that come twice or cannot be, and for spans that go back or beyond."""
    table = _unpacked(content, name, "the table of sections")
    items = table.get("files") if isinstance(table, dict) else None
    if not isinstance(items, list):
        raise Corrupt("the table of sections has no list of files", chunk=name)
    names = [_section_name(item, name) for item in items]
    starts = [_section_start(item, name) for item in items]
    if len(set(names)) < len(names):
        raise Corrupt("a section comes twice in the table of sections", chunk=name)
    ends = [*starts[1:], files_bytes][: len(starts)]
    if files_bytes and starts[:1] != [0]:
        raise Corrupt("the table of sections does not begin with the first byte after the metadata", chunk=name)
    for section, start, end in zip(names, starts, ends, strict=True):
        if start > end:
            message = f"the section [{start}, {end}) ends before it starts, or goes beyond the archive"
            raise Corrupt(message, path=section, chunk=name)
    return list(zip(names, starts, ends, strict=True))


def _section_name(item: Any, name: str) -> str:
    found = item.get("n") if isinstance(item, dict) else None
    if not isinstance(found, str) or not found or "\0" in found or len(found.encode()) > MAX_PATH_BYTES:
        raise Corrupt("a section has no name that can be one", chunk=name)
    return found


def _section_start(item: Any, name: str) -> int:
    found = item.get("o")
    if type(found) is not int or not 0 <= found < 1 << 63:
        raise Corrupt("a section has no offset that can be one", path=item["n"], chunk=name)
    return found


def pack_section_table(sections: Iterable[tuple[str, int]]) -> bytes:
    """The table of sections of these names and sizes in bytes."""
    import msgpack

    files, start = [], 0
    for section, size_bytes in sections:
        files.append({"n": section, "o": start})
        start += size_bytes
    return msgpack.packb({"files": files})  # type: ignore[no-any-return]


def parse_ranges(content: bytes, name: str) -> list[LogRange]:
    """RangeIndex: which records came from which log file. Raises Corrupt."""
    items = _unpacked(content, name, "the range index")
    if not isinstance(items, list):
        raise Corrupt("the range index is no list", chunk=name)
    return [_log_range(item, name) for item in items]


def _log_range(item: Any, name: str) -> LogRange:
    start, end, fields = map(item.get, "sef") if isinstance(item, dict) else (None, None, None)
    if type(start) is not int or type(end) is not int or not 0 <= start <= end < 1 << 64:
        raise Corrupt("a range of the range index is none", chunk=name)
    if not isinstance(fields, dict):
        raise Corrupt("a range of the range index has no fields", chunk=name)
    file_name = fields.get("_filename")
    return LogRange(file_name if isinstance(file_name, str) else None, start, end, fields)


def parse_noted(content: bytes, name: str) -> Noted:
    """Raises Corrupt."""
    found = _unpacked(content, name, "what cafcat noted")
    checksums, sources = map(found.get, ("crc32c", "sources")) if isinstance(found, dict) else (None, None)
    if not isinstance(checksums, list) or not all(type(one) is int and 0 <= one < 1 << 32 for one in checksums):
        raise Corrupt("what cafcat noted has no checksums", chunk=name)
    if not isinstance(sources, list) or not all(map(_is_source, sources)):
        raise Corrupt("what cafcat noted has no sizes and times", chunk=name)
    return Noted(tuple(checksums), tuple((size, modified) for size, modified in sources))


def _is_source(item: Any) -> bool:
    is_pair = isinstance(item, list) and len(item) == 2 and all(type(value) is int for value in item)
    return is_pair and 0 <= item[0] < 1 << 63 and -1 << 63 <= item[1] < 1 << 63


def pack_noted(noted: Noted) -> Packet:
    """The way back."""
    import msgpack

    return Packet(NOTED, msgpack.packb({"crc32c": noted.checksums, "sources": noted.sources}))


def _unpacked(content: bytes, name: str, what: str) -> Any:
    import msgpack

    if len(content) > MAX_PACKET_BYTES:
        message = f"{what} has {len(content):,} bytes: this cafcat reads up to {MAX_PACKET_BYTES:,}"
        raise Unsupported(message, chunk=name)
    try:
        found = msgpack.unpackb(content)
        _check_plain(found)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError, OverflowError) as error:
        shown = " ".join(str(error).split())[:100]
        raise Corrupt(f"{what} is not well-formed msgpack: {shown or type(error).__name__}", chunk=name) from error
    return found


def _check_plain(value: Any) -> None:
    """That there is nothing in it but what JSON has. Raises TypeError."""
    values = [value]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values.extend(value)
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)
        elif value is not None and not isinstance(value, str | int | float):
            raise TypeError(f"a value of type {type(value).__name__}")


def parse_timestamps(content: bytes, name: str) -> TimestampDictionary:
    """TimestampDictionary. Raises Corrupt."""
    cursor = _Cursor(content, name, "the timestamp dictionary")
    ranges = tuple(_timestamp_range(cursor) for _ in range(cursor.count(24)))
    patterns = {cursor.take("<Q"): cursor.text() for _ in range(cursor.count(16))}
    cursor.end()
    return TimestampDictionary(ranges, patterns)


def _timestamp_range(cursor: "_Cursor") -> TimestampRange:
    key = cursor.text()
    column_ids = cursor.take_all(f"<{cursor.count(4)}i")
    encoding = cursor.take("<Q")
    if encoding not in _ENCODINGS:
        cursor.fail(f"has an encoding of type {encoding}")
    begin, end = cursor.take_all(_ENCODINGS[encoding]) or (None, None)
    return TimestampRange(key, column_ids, begin, end)


_ENCODINGS: Final = {0: "<", 1: "<2q", 2: "<2d"}
"""Of times: none, integers, floats."""


class _Cursor:
    """A place in bytes that are read from begin to end. Methods raise Corrupt where these end too early."""

    def __init__(self, data: bytes, name: str, what: str) -> None:
        self._data = data
        self._name = name
        self._what = what
        self._at = 0

    def fail(self, message: str) -> NoReturn:
        raise Corrupt(f"{self._what} {message}", chunk=self._name)

    def bytes(self, size_bytes: int) -> bytes:
        start, self._at = self._at, self._at + size_bytes
        if self._at > len(self._data):
            self.fail(f"ends {self._at - len(self._data):,} bytes too early")
        return self._data[start : self._at]

    def take_all(self, layout: str) -> tuple[Any, ...]:
        """Numbers; layout: of struct."""
        return struct.unpack(layout, self.bytes(struct.calcsize(layout)))

    def take(self, layout: str) -> Any:
        return self.take_all(layout)[0]

    def count(self, least_bytes: int) -> int:
        """How many items follow, of at least so many bytes each."""
        count: int = self.take("<Q")
        if count * least_bytes > len(self._data) - self._at:
            self.fail(f"has no room for {count:,} items")
        return count

    def text(self) -> str:
        """A string with its length before it."""
        raw = self.bytes(self.take("<Q"))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise Corrupt(f"{self._what} has a string that is not valid UTF-8", chunk=self._name) from error

    def end(self) -> None:
        if self._at < len(self._data):
            self.fail(f"goes on for {len(self._data) - self._at:,} bytes after its end")

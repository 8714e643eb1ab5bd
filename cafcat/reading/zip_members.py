"""Headers of a zip archive without compression that is written in one pass (PKWARE APPNOTE 6.3.9, with Zip64).

Sizes and checksum of a member stand before its content, so that a reader of a pipe needs no central directory.
"""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from cafcat.support.spool import Spool

__all__ = ["ZipMembers"]

_LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL: Final = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END: Final = struct.Struct("<4sHHHHIIH")
_END_64: Final = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR: Final = struct.Struct("<4sIQI")
_TIME: Final = struct.Struct("<HHBi")

_VERSION: Final = 45
"""Version needed to extract: 4.5, which has Zip64."""
_MADE_BY_UNIX: Final = 3 << 8 | _VERSION
_UTF_8: Final = 1 << 11
_STORED: Final = 0
_REGULAR_FILE: Final = 0o100644 << 16
_FULL_16: Final = 0xFFFF
_FULL_32: Final = 0xFFFFFFFF
"""The value of a field whose number is in a Zip64 record. So the number itself must be smaller."""
_DIRECTORY_BYTES: Final = 8 << 20
"""The central directory is in memory up to this size, in bytes, and else in a temporary file."""
_BLOCK_BYTES: Final = 256 << 10


class ZipMembers:
    """Makes headers and end of a zip. All members are regular files with the permissions 0644."""

    needs_checksum = True

    def __init__(self) -> None:
        """Begin an archive without members."""
        self._position = 0
        self._count = 0
        self._directory_bytes = 0
        self._directory = Spool("the directory of a zip", _DIRECTORY_BYTES)

    def header(self, name: str, size_bytes: int, modified_ns: int | None, crc32: int) -> bytes:
        """Return the local header of a member, and remember its row of the central directory.

        Raises:
            TemporaryFileFailed: The central directory is in a temporary file, and the disk fails.
        """
        encoded, when = name.encode(), _dos_time(modified_ns)
        extra = _time_field(modified_ns)
        shown, sizes = (
            (size_bytes, b"") if size_bytes < _FULL_32 else (_FULL_32, struct.pack("<QQ", size_bytes, size_bytes))
        )
        more = extra + _zip64_field(sizes)
        fields = (_VERSION, _UTF_8, _STORED, *when, crc32, shown, shown, len(encoded), len(more))
        local = _LOCAL.pack(b"PK\3\4", *fields) + encoded + more
        self._add_row(encoded, fields[:-1], sizes, extra)
        self._position += len(local) + size_bytes
        return local

    def _add_row(self, name: bytes, fields: tuple[int, ...], sizes: bytes, extra: bytes) -> None:
        offset = self._position
        shown, numbers = (offset, sizes) if offset < _FULL_32 else (_FULL_32, sizes + struct.pack("<Q", offset))
        more = extra + _zip64_field(numbers)
        row = _CENTRAL.pack(b"PK\1\2", _MADE_BY_UNIX, *fields, len(more), 0, 0, 0, _REGULAR_FILE, shown)
        row += name + more
        self._directory.write(row)
        self._directory_bytes += len(row)
        self._count += 1

    def trailer(self, size_bytes: int) -> bytes:  # noqa: ARG002 - members follow each other directly
        """Return no bytes."""
        return b""

    def end(self) -> Iterator[bytes]:
        """Yield the central directory and its end records."""
        with self._directory as directory:
            directory.seek(0)
            while block := directory.read(_BLOCK_BYTES):
                yield block
        size, start, count = self._directory_bytes, self._position, self._count
        if count >= _FULL_16 or size >= _FULL_32 or start >= _FULL_32:
            yield _END_64.pack(
                b"PK\6\6", _END_64.size - 12, _MADE_BY_UNIX, _VERSION, 0, 0, count, count, size, start
            )
            yield _LOCATOR.pack(b"PK\6\7", 0, start + size, 1)
        shown = min(count, _FULL_16)
        yield _END.pack(b"PK\5\6", 0, 0, shown, shown, min(size, _FULL_32), min(start, _FULL_32), 0)


def _zip64_field(numbers: bytes) -> bytes:
    return struct.pack("<HH", 1, len(numbers)) + numbers if numbers else b""


def _time_field(modified_ns: int | None) -> bytes:
    """Return the extended timestamp: the time in seconds since 1970 UTC, if it has 32 bits."""
    seconds = (modified_ns or 0) // 10**9
    return _TIME.pack(0x5455, 5, 1, seconds) if modified_ns is not None and -(1 << 31) <= seconds < 1 << 31 else b""


def _dos_time(modified_ns: int | None) -> tuple[int, int]:
    """Return time and date of MS-DOS, in UTC; the nearest possible one for a time before 1980 or after 2107."""
    earliest, latest = 315_532_800, 4_354_819_198
    seconds = min(max((modified_ns or 0) // 10**9, earliest), latest)
    when = datetime.fromtimestamp(seconds, UTC)
    return (
        when.hour << 11 | when.minute << 5 | when.second // 2,
        (when.year - 1980) << 9 | when.month << 5 | when.day,
    )

"""The beginning of a CAR: what stands where in it, and the roots."""

import struct
from typing import Final, NamedTuple, NoReturn

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.base import RandomReader
from cafcat.formats.car import varint
from cafcat.formats.car.cid import CID_BYTES, parse

__all__ = [
    "HEAD_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_ROOTS",
    "PRAGMA",
    "V2_DATA_START",
    "Layout",
    "head_of",
    "read_layout",
    "roots_at",
]

MAX_HEADER_BYTES: Final = 32 << 20
MAX_ROOTS: Final = 100_000
PRAGMA: Final = b"\x0a\xa1\x67version\x02"
V2_DATA_START: Final = 51
"""Behind pragma and header: where the payload begins at the earliest."""
_V2_HEADER: Final = struct.Struct("<16sQQQ")
_FULLY_INDEXED: Final = 0x80
_MOST: Final = (1 << 63) - 1
_FIRST_BYTES: Final = 4096

_BEFORE_ROOT: Final = b"\xa2\x65roots\x81\xd8\x2a\x58" + bytes((CID_BYTES + 1, 0))
_BEHIND_ROOT: Final = b"\x67version\x01"
HEAD_BYTES: Final = V2_DATA_START + 1 + len(_BEFORE_ROOT) + CID_BYTES + len(_BEHIND_ROOT)
"""What a CARv2 with one root of 36 bytes begins with: 110 bytes before the first section."""


class Layout(NamedTuple):
    """Positions in an archive, in bytes from its start.

    The payload, a whole CARv1, is `[data_start, data_end)`; `sections_start`: its first section. damage: set if the
    end of the archive is missing; then data_end is at most the size of the object.
    """

    version: int
    roots: tuple[bytes, ...]
    data_start: int
    sections_start: int
    data_end: int
    index_start: int | None = None
    fully_indexed: bool = False
    damage: Corrupt | None = None


def head_of(root: bytes, data_bytes: int, index_start: int) -> bytes:
    """The first 110 bytes of a CARv2 without padding; root: a CID of 36 bytes; data_bytes: of the payload."""
    header = _BEFORE_ROOT + root + _BEHIND_ROOT
    places = _V2_HEADER.pack(bytes(16), V2_DATA_START, data_bytes, index_start)
    return PRAGMA + places + varint.encode(len(header)) + header


def read_layout(archive: RandomReader) -> Layout:
    """Raises Corrupt or Unsupported."""
    size = archive.size_bytes
    head = archive.read_at(0, min(size, _FIRST_BYTES))
    if not head.startswith(PRAGMA):
        roots, sections_start = _v1_header(archive, 0, size, head)
        return Layout(1, roots, 0, sections_start, size)
    if size < V2_DATA_START:
        raise _corrupt(
            archive, f"not a whole CARv2: {size} bytes are fewer than its header's {V2_DATA_START}", size
        )
    bits, data_start, data_bytes, index_start = _V2_HEADER.unpack_from(head, len(PRAGMA))
    _check_v2(archive, data_start, data_bytes, index_start)
    damage = _missing_end(archive, data_start + data_bytes, index_start)
    data_end = min(data_start + data_bytes, size)
    head = head[data_start:data_end] or archive.read_at(data_start, min(data_end, data_start + _FIRST_BYTES))
    try:
        roots, sections_start = _v1_header(archive, data_start, data_end, head)
    except Corrupt as error:
        raise damage or error from error
    # An index that begins before the payload ends cannot be one; it is not needed, so this is no reason to refuse.
    where = index_start if data_end <= index_start < size else None
    return Layout(2, roots, data_start, sections_start, data_end, where, bool(bits[0] & _FULLY_INDEXED), damage)


def _missing_end(archive: RandomReader, data_end: int, index_start: int) -> Corrupt | None:
    """Return the damage of a CARv2 that ends before its data do, or before its index begins."""
    size = archive.size_bytes
    if data_end > size:
        missing = f"the data should end at byte {data_end}"
    elif index_start >= size:
        missing = f"the index should begin at byte {index_start}"
    else:
        return None
    return _corrupt(archive, f"the end of the archive is missing: {missing}, the object ends at {size}", size)


def roots_at(archive: RandomReader, start: int, end: int) -> tuple[bytes, ...] | None:
    """Return the roots of a CAR that begins in the middle of another one; None if none begins there.

    Raises:
        Corrupt: reading the archive failed.
    """
    head = archive.read_at(start, min(end, start + _FIRST_BYTES))
    try:
        if not head.startswith(PRAGMA):
            return _v1_header(archive, start, end, head)[0]
        (data_start,) = struct.unpack_from("<Q", head, len(PRAGMA) + 16)
        return _v1_header(archive, start + data_start, end, head[data_start:])[0]
    except (Corrupt, Unsupported, struct.error):
        return None


def _check_v2(archive: RandomReader, data_start: int, data_bytes: int, index_start: int) -> None:
    if max(data_start, data_bytes, index_start) > _MOST:
        raise _corrupt(archive, "a place in the header is beyond 2^63 - 1", 27)
    if data_start < V2_DATA_START:
        raise _corrupt(
            archive, f"the data begins at byte {data_start}, within the header of {V2_DATA_START} bytes", 27
        )
    if not data_bytes:
        raise _corrupt(archive, "the header says that there is no data", 35)
    if data_start > archive.size_bytes:
        message = f"the data should begin at byte {data_start}, the object ends at {archive.size_bytes}"
        raise _corrupt(archive, message, 27)


def _v1_header(archive: RandomReader, start: int, end: int, head: bytes) -> tuple[tuple[bytes, ...], int]:
    """The roots, and where the first section begins; head: the payload's first bytes."""
    if len(head) < min(varint.MAX_VARINT_BYTES, end - start):
        head = archive.read_at(start, min(end, start + _FIRST_BYTES))
    try:
        size_bytes, begin = varint.read(head, 0)
    except ValueError as error:
        raise _corrupt(archive, f"not a whole CAR: {error} of its header's size", start) from error
    if not 0 < size_bytes <= MAX_HEADER_BYTES:
        raise _corrupt(archive, f"a header of {size_bytes:,} bytes: 1 to {MAX_HEADER_BYTES:,} can be", start)
    if start + begin + size_bytes > end:
        raise _corrupt(archive, f"not a whole CAR: its header of {size_bytes:,} bytes goes beyond its end", start)
    if begin + size_bytes > len(head):
        head = archive.read_at(start, start + begin + size_bytes)
    header = _HeaderParser(archive, start + begin, head[begin : begin + size_bytes])
    return header.roots(), start + begin + size_bytes


def _corrupt(archive: RandomReader, message: str, byte: int) -> Corrupt:
    return Corrupt(message, chunk=archive.name, byte=byte)


class _HeaderParser:
    """The map `{"roots": [CID…], "version": 1}` in DAG-CBOR, and nothing else."""

    def __init__(self, archive: RandomReader, start: int, data: bytes) -> None:
        self._archive = archive
        self._start = start
        self._data = data
        self._at = 0

    def roots(self) -> tuple[bytes, ...]:
        """Raises Corrupt, or Unsupported for another version."""
        roots: tuple[bytes, ...] | None = None
        version: int | None = None
        for _ in range(self._head(5, "a map")):
            key = self._take(self._head(3, "the name of a member"))
            if key == b"version" and version is None:
                version = self._head(0, "the version as a number")
            elif key == b"roots" and roots is None:
                roots = tuple(self._cid() for _ in range(self._array_size()))
            else:
                self._fail(f"a member {key[:40]!r} of the header, unknown or a second time")
        if self._at != len(self._data):
            self._fail("the header goes on after its end")
        if version is None:
            self._fail("the header has no version")
        if version != 1:
            raise Unsupported(f"CAR of version {version}: this cafcat reads 1 and 2", chunk=self._archive.name)
        if roots is None:
            self._fail("the header has no roots")
        return roots

    def _array_size(self) -> int:
        count = self._head(4, "the roots as a list")
        if count > MAX_ROOTS:
            raise Unsupported(f"{count:,} roots: at most {MAX_ROOTS:,} are read", chunk=self._archive.name)
        return count

    def _cid(self) -> bytes:
        if self._head(6, "a CID") != 42:
            self._fail("a tag other than that of a CID")
        raw = self._take(self._head(2, "the bytes of a CID"))
        try:
            parse(raw[1:])
        except ValueError as error:
            self._fail(f"a root is no CID: {error}")
        if raw[0]:
            self._fail("a root does not begin with the zero of a binary CID")
        return raw[1:]

    def _head(self, kind: int, what: str) -> int:
        """The number in the head of an item of this major type."""
        byte = self._take(1)[0]
        if byte >> 5 != kind or byte & 31 > 27:
            self._fail(f"{what} is expected in the header")
        number = byte & 31
        if number < 24:
            return number
        return int.from_bytes(self._take(1 << number - 24))

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            self._fail("the header ends too early")
        self._at += count
        return taken

    def _fail(self, message: str) -> NoReturn:
        raise _corrupt(self._archive, message, self._start + self._at)

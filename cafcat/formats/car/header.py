"""Reads and writes the header of a CAR: its version, its roots, and the positions of its parts."""

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
    "encode_head",
    "read_layout",
    "roots_at",
]

MAX_HEADER_BYTES: Final = 32 << 20
"""Largest CARv1 header in bytes that is read."""
MAX_ROOTS: Final = 100_000
"""Largest number of roots that is read."""
PRAGMA: Final = b"\x0a\xa1\x67version\x02"
"""The first bytes of a CARv2."""
V2_DATA_START: Final = 51
"""Size in bytes of pragma and CARv2 header. The payload cannot begin earlier."""
_V2_HEADER: Final = struct.Struct("<16sQQQ")
_FULLY_INDEXED: Final = 0x80
_MAX_OFFSET: Final = (1 << 63) - 1
_FIRST_BYTES: Final = 4096
"""Number of bytes that are read at first. Most headers are shorter."""

_BEFORE_ROOT: Final = b"\xa2\x65roots\x81\xd8\x2a\x58" + bytes((CID_BYTES + 1, 0))
_AFTER_ROOT: Final = b"\x67version\x01"
HEAD_BYTES: Final = V2_DATA_START + 1 + len(_BEFORE_ROOT) + CID_BYTES + len(_AFTER_ROOT)
"""Size in bytes of the head of a CARv2 with one root of 36 bytes: 110 bytes before the first section."""


class Layout(NamedTuple):
    """The header of a CAR: its version, its roots, and the positions of its parts in bytes from its start.

    The payload `[data_start, data_end)` is a complete CARv1.

    Attributes:
        version: 1 or 2.
        roots: CIDs of the roots.
        data_start: start of the payload.
        sections_start: start of the first section.
        data_end: end of the payload, at most the size of the archive.
        index_start: start of the index, or None if there is no usable index.
        fully_indexed: True if the header states that the index has all blocks, including those with identity CIDs.
        damage: the error that readers raise if, by the positions in the header, the end of the archive is missing;
            otherwise None.
    """

    version: int
    roots: tuple[bytes, ...]
    data_start: int
    sections_start: int
    data_end: int
    index_start: int | None = None
    fully_indexed: bool = False
    damage: Corrupt | None = None


def encode_head(root: bytes, data_bytes: int, index_start: int) -> bytes:
    """Return the first 110 bytes of a CARv2 without padding before its payload.

    Args:
        root: CID of the only root, 36 bytes.
        data_bytes: size of the payload in bytes.
        index_start: start of the index in bytes, from the start of the archive.
    """
    header = _BEFORE_ROOT + root + _AFTER_ROOT
    offsets = _V2_HEADER.pack(bytes(16), V2_DATA_START, data_bytes, index_start)
    return PRAGMA + offsets + varint.encode(len(header)) + header


def read_layout(archive: RandomReader) -> Layout:
    """Read and check the header of a CAR.

    The header of a CARv2 has the end of the data and the start of the index. If the archive ends before one of
    them, the error is not raised, but returned as `damage`. For a CARv1, `damage` is always None.

    Raises:
        Corrupt: the header is invalid or incomplete.
        Unsupported: the archive has another version than 1 and 2, or more than 100,000 roots, or the payload of a
            CARv2 is not a CARv1.
    """
    size = archive.size_bytes
    head = archive.read_at(0, min(size, _FIRST_BYTES))
    if not head.startswith(PRAGMA):
        roots, sections_start = _v1_header(archive, 0, size, head)
        return Layout(1, roots, 0, sections_start, size)
    if size < V2_DATA_START:
        raise _corrupt(
            archive, f"not a complete CARv2: {size} bytes cannot hold its header of {V2_DATA_START} bytes", size
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
    # An index that begins within the payload is invalid. Reading does not need an index, so it is ignored.
    valid_index_start = index_start if data_end <= index_start < size else None
    return Layout(
        2, roots, data_start, sections_start, data_end, valid_index_start, bool(bits[0] & _FULLY_INDEXED), damage
    )


def _missing_end(archive: RandomReader, data_end: int, index_start: int) -> Corrupt | None:
    """Return (not raise) the error for a CARv2 that is cut within its payload, or before its index begins.

    Return None if the archive is long enough.
    """
    size = archive.size_bytes
    if data_end > size:
        missing = f"the data should end at byte {data_end}"
    elif index_start >= size:
        missing = f"the index should begin at byte {index_start}"
    else:
        return None
    return _corrupt(
        archive, f"the end of the archive is missing: {missing}, but the object ends at byte {size}", size
    )


def roots_at(archive: RandomReader, start: int, end: int) -> tuple[bytes, ...] | None:
    """Return the roots of a second CAR that begins at `start` within an archive.

    Return None if no valid header of a CAR begins there.

    Args:
        archive: the archive.
        start: position in bytes at which another CAR may begin.
        end: end of the payload of the archive in bytes.

    Raises:
        Corrupt: the archive ends before `end`, and before the byte `start` + 4096.
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
    if max(data_start, data_bytes, index_start) > _MAX_OFFSET:
        raise _corrupt(archive, "an offset in the header exceeds 2^63 - 1", 27)
    if data_start < V2_DATA_START:
        raise _corrupt(
            archive, f"the data begins at byte {data_start}, but the header has {V2_DATA_START} bytes", 27
        )
    if not data_bytes:
        raise _corrupt(archive, "by its header the archive has no data", 35)
    if data_start > archive.size_bytes:
        message = f"the data should begin at byte {data_start}, but the object ends at {archive.size_bytes}"
        raise _corrupt(archive, message, 27)


def _v1_header(archive: RandomReader, start: int, end: int, head: bytes) -> tuple[tuple[bytes, ...], int]:
    """Read a CARv1 header, and return the roots and the start of the first section.

    Args:
        archive: the archive.
        start: start of the payload in bytes.
        end: end of the payload in bytes.
        head: the first bytes of the payload; more are read if they do not suffice.

    Raises:
        Corrupt: the header is invalid or incomplete.
        Unsupported: the version is not 1, or there are more than 100,000 roots.
    """
    if len(head) < min(varint.MAX_VARINT_BYTES, end - start):
        head = archive.read_at(start, min(end, start + _FIRST_BYTES))
    try:
        size_bytes, begin = varint.read(head, 0)
    except ValueError as error:
        raise _corrupt(
            archive, f"not a complete CAR: the size of its header cannot be read: {error}", start
        ) from error
    if not 0 < size_bytes <= MAX_HEADER_BYTES:
        raise _corrupt(
            archive, f"the header has {size_bytes:,} bytes, but 1 to {MAX_HEADER_BYTES:,} are allowed", start
        )
    if start + begin + size_bytes > end:
        raise _corrupt(archive, f"not a complete CAR: it ends within its header of {size_bytes:,} bytes", start)
    if begin + size_bytes > len(head):
        head = archive.read_at(start, start + begin + size_bytes)
    header = _HeaderParser(archive, start + begin, head[begin : begin + size_bytes])
    return header.roots(), start + begin + size_bytes


def _corrupt(archive: RandomReader, message: str, byte: int) -> Corrupt:
    return Corrupt(message, chunk=archive.name, byte=byte)


class _HeaderParser:
    """Parses the header of a CARv1: the map `{"roots": [CID…], "version": 1}` in DAG-CBOR. All else is refused."""

    def __init__(self, archive: RandomReader, start: int, data: bytes) -> None:
        self._archive = archive
        self._start = start
        self._data = data
        self._offset = 0

    def roots(self) -> tuple[bytes, ...]:
        """Parse the header and return the roots.

        Raises:
            Corrupt: the header is malformed.
            Unsupported: the version is not 1, or there are more than 100,000 roots.
        """
        roots: tuple[bytes, ...] | None = None
        version: int | None = None
        for _ in range(self._read_head(5, "a map")):
            key = self._read(self._read_head(3, "the name of a member"))
            if key == b"version" and version is None:
                version = self._read_head(0, "a number as version")
            elif key == b"roots" and roots is None:
                roots = tuple(self._cid() for _ in range(self._array_size()))
            else:
                self._fail(f"the member {key[:40]!r} of the header is unknown or repeated")
        if self._offset != len(self._data):
            self._fail("the header has more bytes after its map")
        if version is None:
            self._fail("the header has no version")
        if version != 1:
            raise Unsupported(
                f"CAR version {version} is not supported here: cafcat reads CARv1, and CARv2 with a CARv1 inside",
                chunk=self._archive.name,
            )
        if roots is None:
            self._fail("the header has no roots")
        return roots

    def _array_size(self) -> int:
        count = self._read_head(4, "a list of roots")
        if count > MAX_ROOTS:
            raise Unsupported(
                f"the archive has {count:,} roots, but at most {MAX_ROOTS:,} are supported",
                chunk=self._archive.name,
            )
        return count

    def _cid(self) -> bytes:
        if self._read_head(6, "a CID") != 42:
            self._fail("the header has a tag other than that of a CID")
        raw = self._read(self._read_head(2, "the bytes of a CID"))
        try:
            parse(raw[1:])
        except ValueError as error:
            self._fail(f"a root is not a valid CID: {error}")
        if raw[0]:
            self._fail("a root does not begin with the zero byte of a binary CID")
        return raw[1:]

    def _read_head(self, kind: int, label: str) -> int:
        """Read the head of the next CBOR item, and return its number (a value, a size or a tag).

        Raises Corrupt if the item does not have the major type `kind`, which `label` describes.
        """
        byte = self._read(1)[0]
        if byte >> 5 != kind or byte & 31 > 27:
            self._fail(f"the header is malformed: expected {label}")
        number = byte & 31
        if number < 24:
            return number
        return int.from_bytes(self._read(1 << number - 24))

    def _read(self, count: int) -> bytes:
        data = self._data[self._offset : self._offset + count]
        if len(data) < count:
            self._fail("the header ends too early")
        self._offset += count
        return data

    def _fail(self, message: str) -> NoReturn:
        raise _corrupt(self._archive, message, self._start + self._offset)

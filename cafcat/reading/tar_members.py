"""Headers of a tar archive (POSIX pax) that is written in one pass."""

from collections.abc import Iterator
from tarfile import BLOCKSIZE, PAX_FORMAT, RECORDSIZE, USTAR_FORMAT, XHDTYPE, TarInfo
from typing import Final

__all__ = ["TarMembers"]

_NANOSECONDS: Final = 10**9
_NAME_BYTES: Final = 100
_FIRST_SECOND, _END_SECOND = 10**9, 8**11
"""Times within this span have ten digits in pax records and fit into a header: 2001 to 2242."""
_END_SIZE: Final = 8**11
_SIZE_AT, _CHECKSUM_AT, _TYPE_AT = 124, 148, 156
"""Offsets in a header. The name comes first, and the time stands between size and checksum."""
_EMPTY: Final = TarInfo().tobuf(USTAR_FORMAT)
"""Header of an empty file without name and time."""
_EMPTY_SUM: Final = sum(_EMPTY[_NAME_BYTES:_SIZE_AT]) + 8 * ord(" ") + sum(_EMPTY[_TYPE_AT:])
"""Checksum of a header with zero bytes as name, size and time."""
_TIME_RECORD: Final = b"30 mtime=%d.%09d\n"


def _time_head() -> bytes:
    """Return the header before a pax record that has the time."""
    info = TarInfo("././@PaxHeader")
    info.type, info.mode, info.size = XHDTYPE, 0, 30
    return info.tobuf(USTAR_FORMAT)


_TIME_HEAD: Final = _time_head()


class TarMembers:
    """Makes headers, padding and end of a tar. All members are regular files with the permissions 0644."""

    needs_checksum = False

    def __init__(self) -> None:
        """Begin an archive without members."""
        self._size_bytes = 0

    def header(self, name: str, size_bytes: int, modified_ns: int | None, crc32: int) -> bytes:  # noqa: ARG002 - a tar has no checksums
        """Return the header of a member: with pax records if the name or the time needs them."""
        seconds, nanoseconds = divmod(modified_ns or 0, _NANOSECONDS)
        is_plain = len(name) <= _NAME_BYTES and name.isascii() and size_bytes < _END_SIZE
        if is_plain and _FIRST_SECOND <= seconds < _END_SECOND:
            header = _plain_header(name.encode("ascii"), size_bytes, seconds, nanoseconds)
        else:
            header = _any_header(name, size_bytes, seconds, nanoseconds)
        self._size_bytes += len(header) + size_bytes + len(self.trailer(size_bytes))
        return header

    def trailer(self, size_bytes: int) -> bytes:
        """Return the zeros that fill the last block of 512 bytes of a member."""
        return bytes(-size_bytes % BLOCKSIZE)

    def end(self) -> Iterator[bytes]:
        """Yield two blocks of zeros, and more of them up to a multiple of 10,240 bytes, as GNU tar does."""
        yield bytes(2 * BLOCKSIZE)
        yield bytes(-(self._size_bytes + 2 * BLOCKSIZE) % RECORDSIZE)


def _plain_header(name: bytes, size_bytes: int, seconds: int, nanoseconds: int) -> bytes:
    """Return the header of a member that needs no pax record except for the time.

    The result is that of `_any_header`, which takes twenty times as long.
    """
    numbers = b"%011o\0%011o\0" % (size_bytes, seconds)
    header = b"%b%b%b%06o\0 %b" % (
        name.ljust(_NAME_BYTES, b"\0"),
        _EMPTY[_NAME_BYTES:_SIZE_AT],
        numbers,
        _EMPTY_SUM + sum(name) + sum(numbers),
        _EMPTY[_TYPE_AT:],
    )
    if not nanoseconds:
        return header
    return _TIME_HEAD + (_TIME_RECORD % (seconds, nanoseconds)).ljust(BLOCKSIZE, b"\0") + header


def _any_header(name: str, size_bytes: int, seconds: int, nanoseconds: int) -> bytes:
    info = TarInfo(name)
    info.size, info.mtime = size_bytes, seconds
    if nanoseconds:
        info.pax_headers = {"mtime": _decimal(seconds * _NANOSECONDS + nanoseconds)}
    return info.tobuf(PAX_FORMAT, "utf-8", "surrogateescape")


def _decimal(nanoseconds: int) -> str:
    """Return a time in seconds, with all digits: pax records are decimal text."""
    sign, absolute = "-" if nanoseconds < 0 else "", abs(nanoseconds)
    return f"{sign}{absolute // _NANOSECONDS}.{absolute % _NANOSECONDS:09d}"

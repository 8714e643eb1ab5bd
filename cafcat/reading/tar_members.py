"""Headers of a tar archive (POSIX pax) that is written in one pass."""

from collections.abc import Iterator
from tarfile import BLOCKSIZE, PAX_FORMAT, RECORDSIZE, TarInfo
from typing import Final

__all__ = ["TarMembers"]

_NANOSECONDS: Final = 10**9


class TarMembers:
    """Makes headers, padding and end of a tar. All members are regular files with the permissions 0644."""

    needs_checksum = False

    def __init__(self) -> None:
        """Begin an archive without members."""
        self._size_bytes = 0

    def header(self, name: str, size_bytes: int, modified_ns: int | None, crc32: int) -> bytes:  # noqa: ARG002 - a tar has no checksums
        """Return the header of a member: with pax records if the name or the time needs them."""
        info = TarInfo(name)
        info.size = size_bytes
        info.mtime, nanoseconds = divmod(modified_ns or 0, _NANOSECONDS)
        if nanoseconds:
            info.pax_headers = {"mtime": _decimal(modified_ns or 0)}
        header = info.tobuf(PAX_FORMAT, "utf-8", "surrogateescape")
        self._size_bytes += len(header) + size_bytes + len(self.trailer(size_bytes))
        return header

    def trailer(self, size_bytes: int) -> bytes:
        """Return the zeros that fill the last block of 512 bytes of a member."""
        return bytes(-size_bytes % BLOCKSIZE)

    def end(self) -> Iterator[bytes]:
        """Yield two blocks of zeros, and more of them up to a multiple of 10,240 bytes, as GNU tar does."""
        yield bytes(2 * BLOCKSIZE)
        yield bytes(-(self._size_bytes + 2 * BLOCKSIZE) % RECORDSIZE)


def _decimal(nanoseconds: int) -> str:
    """Return a time in seconds, with all digits: pax records are decimal text."""
    sign, absolute = "-" if nanoseconds < 0 else "", abs(nanoseconds)
    return f"{sign}{absolute // _NANOSECONDS}.{absolute % _NANOSECONDS:09d}"

"""The checksum that cafcat adds to the index of CAF, which its CAR and ChunkIO archives have, too.

The index ends with a member that programs of others ignore: `,"index_crc32c":"0a1b2c3d"}`. The value is the CRC-32C
of all bytes of the index before this member, as eight lower-case hexadecimal digits.
"""

import re
from typing import Final

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.support.checksums import crc32c

__all__ = ["CHECKSUM_BYTES", "IndexChecksum", "checksum_text", "stored_checksum"]

_TEXT: Final = b',"index_crc32c":"%08x"}'
_PATTERN: Final = re.compile(rb',"index_crc32c":"([0-9a-f]{8})"\}')
_BLOCK_BYTES: Final = 1 << 20
CHECKSUM_BYTES: Final = len(_TEXT % 0)
"""Size in bytes of the member with the comma before it and the closing brace of the index."""


def checksum_text(checksum: int) -> bytes:
    """Return the end of an index whose bytes before it have this CRC-32C."""
    return _TEXT % checksum


def stored_checksum(archive: RandomReader, index_start: int, index_end: int) -> "IndexChecksum | None":
    """Return the checksum at the end of the index `[index_start, index_end)`; None if there is none.

    Archives of other programs and of earlier versions of cafcat have none. A member of this name that is written in
    any other way, or that stands elsewhere, is not a checksum.
    """
    covered_end = index_end - CHECKSUM_BYTES
    if covered_end < index_start:
        return None
    found = _PATTERN.fullmatch(archive.read_at(covered_end, index_end))
    return None if found is None else IndexChecksum(archive, index_start, covered_end, int(found[1], 16))


class IndexChecksum:
    """A RandomReader of the archive that computes the checksum of its index while the index is read in order."""

    def __init__(self, archive: RandomReader, index_start: int, covered_end: int, expected: int) -> None:
        """Args: covered_end: where the bytes end that the checksum covers; expected: the stored CRC-32C."""
        self.name = archive.name
        self.size_bytes = archive.size_bytes
        self._archive = archive
        self._index_start = index_start
        self._covered_end = covered_end
        self._expected = expected
        self.restart()

    def restart(self) -> None:
        """Start anew: the index is read from its start again."""
        self._position = self._index_start
        self._found = 0

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly these bytes."""
        data = self._archive.read_at(start_byte, end_byte)
        if start_byte == self._position < self._covered_end:
            covered = data[: self._covered_end - start_byte]
            self._found = crc32c(covered, self._found)
            self._position += len(covered)
        return data

    def read_all(self) -> None:
        """Read the index from the first byte that was not read yet."""
        while self._position < self._covered_end:
            self.read_at(self._position, min(self._position + _BLOCK_BYTES, self._covered_end))

    def check(self) -> None:
        """Raise Corrupt unless all bytes before the checksum were read and have that checksum."""
        if (self._position, self._found) != (self._covered_end, self._expected):
            message = f"the index is damaged: it has the CRC-32C {self._found:08x}, not {self._expected:08x}"
            raise Corrupt(message, chunk=self.name, byte=self._index_start)

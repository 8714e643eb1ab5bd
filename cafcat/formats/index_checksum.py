"""Defines and checks the checksum member that ends the JSON index of CAF, CAR and ChunkIO archives of cafcat.

The index ends with a member that other programs ignore: `,"index_crc32c":"0a1b2c3d"}`. The value is the CRC-32C of
all bytes of the index before this member, as eight lower-case hexadecimal digits. See docs/formats/caf.md.
"""

import re
from typing import Final

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.support.checksums import crc32c

__all__ = ["CHECKSUM_BYTES", "CHECKSUM_TEXT", "IndexChecksum", "stored_checksum"]

CHECKSUM_TEXT: Final = b',"index_crc32c":"%08x"}'
"""The bytes that end an index, to be formatted with the CRC-32C of all bytes before them."""
_PATTERN: Final = re.compile(rb',"index_crc32c":"([0-9a-f]{8})"\}')
_BLOCK_BYTES: Final = 1 << 20
CHECKSUM_BYTES: Final = len(CHECKSUM_TEXT % 0)
"""Size in bytes of the checksum member, including the comma before it and the closing brace of the index."""


def stored_checksum(archive: RandomReader, index_start: int, index_end: int) -> "IndexChecksum | None":
    """Return a checker for the checksum at the end of the index, or None if the index has no checksum.

    Archives of other programs and of early versions of cafcat have no checksum. Only a member "index_crc32c" at the
    end of the index, written exactly as cafcat writes it, counts as a checksum.

    Args:
        archive: the archive.
        index_start: start of the index in bytes.
        index_end: end of the index in bytes, exclusive.
    """
    covered_end = index_end - CHECKSUM_BYTES
    if covered_end < index_start:
        return None
    found = _PATTERN.fullmatch(archive.read_at(covered_end, index_end))
    return None if found is None else IndexChecksum(archive, index_start, covered_end, int(found[1], 16))


class IndexChecksum:
    """A RandomReader for an archive that computes the CRC-32C of the index while the index is read in order.

    The CRC-32C covers the bytes `[index_start, covered_end)`. `check` compares it with the one in the index.

    Attributes:
        name: name of the archive.
        size_bytes: size of the archive in bytes.
    """

    def __init__(self, archive: RandomReader, index_start: int, covered_end: int, expected: int) -> None:
        """Prepare to read the index from its start.

        Args:
            archive: the archive.
            index_start: first byte of the index.
            covered_end: end of the bytes of the index that the checksum covers.
            expected: the CRC-32C that is stored at the end of the index.
        """
        self.name = archive.name
        self.size_bytes = archive.size_bytes
        self._archive = archive
        self._index_start = index_start
        self._covered_end = covered_end
        self._expected = expected
        self.restart()

    def restart(self) -> None:
        """Reset the computed checksum, before the index is read from its start again."""
        self._position = self._index_start
        self._computed = 0

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes of `[start_byte, end_byte)` of the archive.

        If these bytes begin where the last read of the index ended, the computed checksum is continued with those
        of them that the stored checksum covers.
        """
        data = self._archive.read_at(start_byte, end_byte)
        if start_byte == self._position < self._covered_end:
            covered = data[: self._covered_end - start_byte]
            self._computed = crc32c(covered, self._computed)
            self._position += len(covered)
        return data

    def read_all(self) -> None:
        """Read the rest of the index, from the first byte that was not read yet, only to compute the checksum."""
        while self._position < self._covered_end:
            self.read_at(self._position, min(self._position + _BLOCK_BYTES, self._covered_end))

    def check(self) -> None:
        """Compare the computed CRC-32C with the one that the index stores.

        Raises:
            Corrupt: the two differ, or not all bytes that the checksum covers were read.
        """
        if (self._position, self._computed) != (self._covered_end, self._expected):
            message = f"the index is damaged: its CRC-32C is {self._computed:08x}, expected {self._expected:08x}"
            raise Corrupt(message, chunk=self.name, byte=self._index_start)

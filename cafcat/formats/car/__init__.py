"""The archive format CAR, versions 1 and 2, of IPFS: a list of blocks that are named by the hash of their bytes.

Layout, rules and differences from the original programs: docs/formats/car.md.
"""

from collections.abc import Iterator
from typing import Final

from cafcat.formats.base import Format, RandomReader, Sink
from cafcat.formats.car import assembling
from cafcat.formats.car.header import PRAGMA
from cafcat.formats.car.reader import CarReader
from cafcat.formats.car.writer import CarWriter
from cafcat.model import Entry

__all__ = ["CAR", "CarFormat", "CarReader", "CarWriter"]

_FIRST_MEMBERS: Final = (b"\xa2\x65roots", b"\xa2\x67version")


class CarFormat:
    """The archive format CAR. cafcat writes CARv2 and reads CARv1 and CARv2.

    Implements `Format` and `AllowsZeroPadding`.
    """

    def __init__(self, *, zero_padding: bool = False) -> None:
        """Create the format.

        Args:
            zero_padding: True if readers treat a section of size zero as the end of the archive's payload. False if
                they report it as damage.
        """
        self._zero_padding = zero_padding

    def with_zero_padding(self) -> "CarFormat":
        """Return a variant of the format whose readers treat a section of size zero as the end of the payload."""
        return CarFormat(zero_padding=True)

    name: Final = "car"
    suffix: Final = ".car"
    names_files: Final = True
    rewrites_head: Final = True

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """Return True if the archive begins with the pragma of a CARv2, or like the header of a CARv1."""
        del tail
        return head.startswith(PRAGMA) or any(0 < head.find(member, 0, 17) <= 9 for member in _FIRST_MEMBERS)

    def writer(self, sink: Sink) -> CarWriter:
        """Return a writer that writes a new CARv2 to `sink`.

        Raises:
            Unsupported: the sink is not a HeadSink, so that the head cannot be rewritten at the end.
        """
        return CarWriter(sink)

    def reader(self, archive: RandomReader) -> CarReader:
        """Return a reader for a CAR.

        Raises:
            Corrupt: the header is invalid or incomplete, or the manifest is not where its trailer points.
            Unsupported: the archive has another version than 1 and 2, or more than 100,000 roots.
        """
        return CarReader(archive, zero_padding=self._zero_padding)

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """Return the content of an entry with a `decoding`; see `Format.decode`.

        Every block of the file is checked against its hash, if cafcat can compute its hash function.

        Raises:
            Corrupt: a block is missing or damaged, or the content does not have the size in the entry.
            Unsupported: the decoding is unknown. Or it is "dag" (blocks in any order), and the span has more than
                1,048,576 distinct blocks.
            TemporaryFileFailed: the decoding is "dag", and the temporary file for the blocks failed.
        """
        return assembling.decode(span, entry)


CAR: Final[Format] = CarFormat()

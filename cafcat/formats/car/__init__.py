"""CAR, versions 1 and 2: the archive format of IPFS, a list of blocks that are named by the hash of their bytes.

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
    """The CAR format.

    cafcat writes CARv2 and reads CARv1 and CARv2. Implements `Format` and `AllowsZeroPadding`.
    """

    def __init__(self, *, zero_padding: bool = False) -> None:
        """Create the format.

        Args:
            zero_padding: True if readers accept zero padding; see `CarReader`.
        """
        self._zero_padding = zero_padding

    def with_zero_padding(self) -> "CarFormat":
        """Return the format with readers that treat a section of size zero as the end of the payload."""
        return CarFormat(zero_padding=True)

    name: Final = "car"
    suffix: Final = ".car"
    names_files: Final = True
    rewrites_head: Final = True

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """Return True for the pragma of CARv2, and for the map of a CARv1 header after the varint of its size."""
        del tail
        return head.startswith(PRAGMA) or any(0 < head.find(member, 0, 17) <= 9 for member in _FIRST_MEMBERS)

    def writer(self, sink: Sink) -> CarWriter:
        """Return a writer for a new archive.

        Raises:
            Unsupported: the sink is not a HeadSink.
        """
        return CarWriter(sink)

    def reader(self, archive: RandomReader) -> CarReader:
        """Return a reader for an archive.

        Raises:
            Corrupt, Unsupported: the header is invalid.
        """
        return CarReader(archive, zero_padding=self._zero_padding)

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """Return the content of an entry with a `decoding`; see `Format.decode`.

        Every block is checked against its hash.

        Raises:
            Corrupt: a block is missing or damaged.
            Unsupported: the decoding is unknown, or the file has too many blocks that are not in order.
        """
        return assembling.decode(span, entry)


CAR: Final[Format] = CarFormat()

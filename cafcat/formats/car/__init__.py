"""CAR, versions 1 and 2: blocks by the hash of their bytes, as IPFS keeps and hands them over.

Layout, rules and deviations from the original programs: docs/formats/car.md.
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
    """CARv2 is written, both are read."""

    def __init__(self, *, zero_ends: bool = False) -> None:
        """Args: zero_ends: as in CarReader."""
        self._zero_ends = zero_ends

    def with_zero_padding(self) -> "CarFormat":
        """Return the format with readers that take a section of size zero for the end of the payload."""
        return CarFormat(zero_ends=True)

    name: Final = "car"
    suffix: Final = ".car"
    names_files: Final = True
    rewrites_head: Final = True

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """True for the pragma of CARv2, and for a map with the members of CARv1 behind the varint of its size."""
        del tail
        return head.startswith(PRAGMA) or any(0 < head.find(member, 0, 17) <= 9 for member in _FIRST_MEMBERS)

    def writer(self, sink: Sink) -> CarWriter:
        """Raises Unsupported if the sink is no HeadSink."""
        return CarWriter(sink)

    def reader(self, archive: RandomReader) -> CarReader:
        """Raises Corrupt or Unsupported if the head cannot be right."""
        return CarReader(archive, zero_ends=self._zero_ends)

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """The content of an entry with `decoding`; every block is checked against its hash. Raises Corrupt;
        Unsupported."""
        return assembling.decode(span, entry)


CAR: Final[Format] = CarFormat()

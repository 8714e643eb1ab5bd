"""What is asked for."""

from typing import NamedTuple

from cafcat.errors import InvalidInput
from cafcat.model import Location

__all__ = ["ReadRequest"]


class ReadRequest(NamedTuple):
    """A file that is wanted, by the name that it was asked for; and which bytes of its chunk have to be read.

    part: `[start, end)` of the content that these are decoded to; None where the bytes of the chunk are the file's,
    so that no more is read than is wanted.
    """

    name: str
    location: Location
    start_byte: int
    end_byte: int
    part: tuple[int, int] | None = None

    @property
    def size_bytes(self) -> int:
        """Of what is read."""
        return self.end_byte - self.start_byte

    @property
    def made_bytes(self) -> int:
        """Of what has to be made of it, or else read: a file that is decoded may be much larger than its span."""
        return self.size_bytes if self.part is None else max(self.size_bytes, self.location.size_bytes)

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the file, so that its checksum can be checked."""
        if self.part is not None:
            return self.part == (0, self.location.size_bytes)
        return self.size_bytes == self.location.size_bytes

    @classmethod
    def of(cls, name: str, location: Location, start: int = 0, end: int | None = None) -> "ReadRequest":
        """Bytes `[start, end)` of the file, cut at its end; a negative start counts from the end. Raises
        InvalidInput if the range begins beyond the file, or makes no sense."""
        if start == 0 and end is None and location.decoding is None:
            return cls(name, location, location.start_byte, location.end_byte)
        first, last = _range(location, start, end)
        if location.decoding is not None:
            return cls(name, location, location.start_byte, location.end_byte, (first, last))
        return cls(name, location, location.start_byte + first, location.start_byte + last)


def _range(location: Location, start: int, end: int | None) -> tuple[int, int]:
    size = location.size_bytes
    first = max(0, size + start) if start < 0 else start
    last = size if end is None else min(end, size)
    if end is not None and end < first:
        raise InvalidInput(f"a range of {start} to {end} makes no sense", path=location.path)
    if first > size or (first == size and size > 0):
        raise InvalidInput(f"the range begins at {first}, the file has {size} bytes", path=location.path)
    return first, last

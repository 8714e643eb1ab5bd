"""A request to read one file, or a range of its bytes."""

from typing import NamedTuple

from cafcat.errors import InvalidInput
from cafcat.model import Location

__all__ = ["ReadRequest"]


class ReadRequest(NamedTuple):
    """One file to read, and which bytes of its chunk are needed for that.

    Attributes:
        name: Path of the file as the caller gave it.
        location: Where the file is.
        start_byte: First byte to read, from the start of the chunk.
        end_byte: One past the last byte to read.
        decoded_range: For a file that its format has to decode, the bytes `[start, end)` of the decoded content
            that are requested. None for a file whose bytes are in the chunk as they are.
        is_whole: True if all bytes of the file are requested, so that they can be compared with its checksum.
    """

    name: str
    location: Location
    start_byte: int
    end_byte: int
    decoded_range: tuple[int, int] | None = None
    is_whole: bool = True

    @property
    def size_bytes(self) -> int:
        """Number of bytes to read from the chunk."""
        return self.end_byte - self.start_byte

    @property
    def memory_bytes(self) -> int:
        """Number of bytes in memory if the file is read at once, not in blocks.

        That is the number of bytes to read from the chunk or, if it is larger, the size of the decoded file.
        """
        read_bytes = self.end_byte - self.start_byte
        return read_bytes if self.decoded_range is None else max(read_bytes, self.location.size_bytes)

    @property
    def modified_ns(self) -> int | None:
        """Modification time for a file that is written with the requested bytes, in nanoseconds since 1970.

        None if only a part of the file is requested, or if the catalog has no time.
        """
        return self.location.modified_ns if self.is_whole else None

    @classmethod
    def of(cls, name: str, location: Location, start: int = 0, end: int | None = None) -> "ReadRequest":
        """Return the request for bytes `[start, end)` of a file.

        Args:
            name: Path of the file as the caller gave it.
            location: Where the file is.
            start: First byte; a negative number counts from the end of the file.
            end: One past the last byte, not negative; None, or a number beyond the end, for the end of the file.

        Raises:
            InvalidInput: The range begins at or beyond the end of a file that is not empty, or beyond the end of an
                empty file, or ends before it begins, or its end is negative.
        """
        if start == 0 and end is None and location.decoding is None:
            return cls(name, location, location.start_byte, location.end_byte)
        first, last = _range(location, start, end)
        is_whole = (first, last) == (0, location.size_bytes)
        if location.decoding is not None:
            return cls(name, location, location.start_byte, location.end_byte, (first, last), is_whole)
        first_byte = location.start_byte + first
        return cls(name, location, first_byte, first_byte + last - first, None, is_whole)


def _range(location: Location, start: int, end: int | None) -> tuple[int, int]:
    size = location.size_bytes
    if end is not None and end < 0:
        message = f"the end of a range must be at least 0, not {end}; the file has {size} bytes"
        raise InvalidInput(message, path=location.path)
    first = max(0, size + start) if start < 0 else start
    last = size if end is None else min(end, size)
    if end is not None and end < first:
        message = f"the range {start} to {end} ends before it begins; the file has {size} bytes"
        raise InvalidInput(message, path=location.path)
    if first > size or (first == size and size > 0):
        raise InvalidInput(f"the range begins at byte {first}, but the file has {size} bytes", path=location.path)
    return first, last

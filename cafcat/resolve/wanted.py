"""What is asked for."""

from typing import NamedTuple

from cafcat.model import Location

__all__ = ["Wanted"]


class Wanted(NamedTuple):
    """A file that is wanted, by the name that it was asked for; and which of its bytes, as a span of its chunk."""

    name: str
    location: Location
    start_byte: int
    end_byte: int

    @property
    def size_bytes(self) -> int:
        return self.end_byte - self.start_byte

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the file, so that its checksum can be checked."""
        return self.size_bytes == self.location.size_bytes

    @classmethod
    def all_of(cls, location: Location) -> "Wanted":
        return cls(location.path, location, location.start_byte, location.end_byte)

"""Parts of a source, which several processes list and pack side by side."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

from cafcat.sources.base import Source

__all__ = ["WHOLE", "DivisibleSource", "EditedSource", "Part", "number_parts"]


class Part(NamedTuple):
    """A part of a source: its files after one position, up to and including another one.

    The positions are texts that the source defines: keys of a bucket, paths in the catalog, offsets in a list.

    Attributes:
        after: The part begins after this position; None for the beginning of the source.
        through: The part ends with this position; None for the end of the source.
    """

    after: str | None = None
    through: str | None = None

    def contains(self, position: str) -> bool:
        """Return True if a position is in the part. Only for sources whose positions sort like texts."""
        return (self.after is None or position > self.after) and not self.is_before(position)

    def is_before(self, position: str) -> bool:
        """Return True if the part ends before a position. Only for sources whose positions sort like texts."""
        return self.through is not None and position > self.through


WHOLE = Part()
"""The part that is the whole source."""


def number_parts(part: Part, count: int, wanted: int) -> list[Part]:
    """Cut a part into parts of equal size, for a source whose positions are decimal numbers.

    Args:
        part: The part to cut: after one number, through another one.
        count: The number at the end of the source.
        wanted: Number of parts, or fewer if the part does not have so many numbers.
    """
    begin, end = int(part.after or 0), count if part.through is None else int(part.through)
    step = max(1, -(-(end - begin) // wanted))
    cuts = map(str, range(begin + step, end, step))
    return [Part(*ends) for ends in pairwise([part.after, *cuts, part.through])]


@runtime_checkable
class EditedSource(Source, Protocol):
    """A source whose positions fit only one edition of it, such as the offsets in a list of names."""

    @property
    def edition(self) -> str:
        """A text that differs if the positions of the source mean other files; "" if they never do."""


@runtime_checkable
class DivisibleSource(Source, Protocol):
    """A source that can be cut into parts, each of which can be opened and listed by itself."""

    def cut(self, part: Part, wanted: int) -> Sequence[Part]:
        """Cut a part of the source into smaller parts, without listing all its files.

        Args:
            part: The part to cut; WHOLE for the source as a whole.
            wanted: Number of parts that the caller would like. The result can have more or fewer.

        Returns:
            The parts in order. Every file of `part` is in exactly one of them. Some parts may be empty.

        Raises:
            CafcatError: The source cannot be listed.
        """

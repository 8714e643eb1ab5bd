"""Listings that are read page by page."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

__all__ = ["FIRST_ROWS", "more_rows", "pages_of"]

Item = TypeVar("Item")
FIRST_ROWS: Final = 16
"""Number of rows of a first page, if perhaps only its first row is needed."""


def pages_of(function: Callable[[Item | None], Sequence[Item]], most: int) -> Iterator[Sequence[Item]]:
    """Yield the pages of a listing, from the first to the last one that is not empty.

    Args:
        function: Returns the items after an item; the first items for None.
        most: Largest number of items that `function` returns. A page with fewer items is the last one.
    """
    after: Item | None = None
    while page := function(after):
        yield page
        if len(page) < most:
            return
        after = page[-1]


def more_rows(rows: int, most: int) -> int:
    """Return the number of rows of the next page: eight times as many as of the page before, at most `most`."""
    return min(most, 8 * rows)

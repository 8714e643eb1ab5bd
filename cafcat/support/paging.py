"""Listings that are read page by page."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["pages_of"]

Item = TypeVar("Item")


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

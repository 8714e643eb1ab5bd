"""How far a source that answers slowly is asked ahead."""

from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeVar

from cafcat.prefetch import in_order

__all__ = ["fetched"]

_MOST_IN_FLIGHT: Final = 64
"""Hides an answer time of 30 ms at some 2,000 answers per second, more than one process takes in."""
_BUDGET_BYTES: Final = 64 << 20
"""What is asked for, and not yet taken, is no larger; unless it is a single one."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def fetched(
    function: Callable[[Item], Result], items: Iterable[Item], cost: Callable[[Item], int]
) -> Generator[Result, None, None]:
    """`function` of each item in their order, as `in_order` has it. cost: bytes in memory of a result."""
    return in_order(function, items, most_in_flight=_MOST_IN_FLIGHT, cost=cost, budget=_BUDGET_BYTES)

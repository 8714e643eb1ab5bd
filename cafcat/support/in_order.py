"""Many answers under way at once, taken in the order in which they were asked for."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["in_order"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    most_in_flight: int,
    cost: Callable[[Item], int] = lambda _: 0,
    budget: int = 0,
) -> Generator[Result, None, None]:
    """`function` of each item, run in threads, in the order of the items. At most so many are begun and not taken
    yet; nor so many that their summed cost exceeds the budget, unless it is a single one. Items are taken in the
    caller's thread. An exception of the function is raised in its turn.

    Closing the iterator gives up what has not begun, waits for what has, and closes the results that nobody took,
    if they can be.
    """
    from concurrent.futures import ThreadPoolExecutor  # a command that reads one file needs none

    waiting: deque[tuple[Future[Result], int]] = deque()
    spent = 0
    pool = ThreadPoolExecutor(most_in_flight, thread_name_prefix="cafcat-read")
    try:
        for item in items:
            price = cost(item)
            while waiting and (len(waiting) >= most_in_flight or spent + price > budget):
                future, paid = waiting.popleft()
                spent -= paid
                yield future.result()
            waiting.append((pool.submit(function, item), price))
            spent += price
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for future, _ in waiting:
            _close(future)


def _close(future: "Future[Any]") -> None:
    if not future.cancelled() and future.exception() is None:
        close = getattr(future.result(), "close", None)
        if close is not None:
            close()

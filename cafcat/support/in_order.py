"""Runs a function for many items in threads, and yields the results in the order of the items."""

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
    """Yield `function(item)` for each item in order, computed by threads ahead of the caller.

    The items are iterated in the caller's thread. An exception of the function is raised when its result is due.

    Closing the generator cancels calls that have not begun, waits for the others, and closes their results, if
    these have a method `close`.

    Args:
        function: Called in a thread.
        items: The items.
        most_in_flight: Most results that are begun and not yet yielded.
        cost: Returns the cost of an item, such as bytes of memory.
        budget: Largest sum of the costs of begun and not yet yielded results. A single item may cost more.
    """
    from concurrent.futures import ThreadPoolExecutor  # imported here: reading one file needs no threads

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

"""Calls a function for many items in threads, and yields the results in the order of the items."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["in_order", "made_ahead"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    most_in_flight: int,
    most_begun: int | None = None,
    cost: Callable[[Item], int] = lambda _: 0,
    budget: int = 0,
) -> Generator[Result, None, None]:
    """Yield the result of a function for each item, in the order of the items.

    The function runs in threads; the items are iterated in the caller's thread. An exception of the function is
    raised where its result would be yielded, and ends the iterator. An iterator that ends early, or is closed,
    cancels the calls that have not begun and waits for those that run. It closes the results that were not
    yielded, if they have a `close` method.

    Args:
        function: Called once for each item.
        items: The items. At most one is read ahead of the items whose calls were begun or are queued.
        most_in_flight: Largest number of calls that run at the same time.
        most_begun: Largest number of calls that were begun or queued, and whose results were not yielded yet. None
            means `most_in_flight`. With a larger number, a single slow call does not keep the next calls from
            beginning.
        cost: Returns the cost of an item's result, for instance its size in bytes. By default, each costs 0.
        budget: Largest total cost of the calls that `most_begun` limits. A single item may cost more.
    """
    from concurrent.futures import ThreadPoolExecutor  # a command that reads one file needs no threads

    waiting: deque[tuple[Future[Result], int]] = deque()
    most_begun = most_begun or most_in_flight
    spent = 0
    pool = ThreadPoolExecutor(most_in_flight, thread_name_prefix="cafcat-read")
    try:
        for item in items:
            price = cost(item)
            while waiting and (len(waiting) >= most_begun or spent + price > budget):
                future, paid = waiting.popleft()
                spent -= paid
                yield future.result()
                del future  # a result is not kept while the next one is waited for
            waiting.append((pool.submit(function, item), price))
            spent += price
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for future, _ in waiting:
            _close(future)


def made_ahead(items: Iterator[Item], *, at_once: bool = False) -> Generator[Item, None, None]:
    """Yield the items of an iterator. While the caller uses one of them, a thread makes the next one.

    An exception of the iterator is raised where its item would be yielded. If this generator is closed, it waits
    for the thread.

    Args:
        items: The iterator.
        at_once: True to begin the second item before the caller gets the first one. False to begin it when the
            caller asks for it: if there is only one item, no thread starts.
    """
    end = object()
    if not at_once:
        first = next(items, end)
        if first is end:
            return
        yield first  # type: ignore[misc]
    for item in in_order(lambda _: next(items, end), repeat(None), most_in_flight=1, most_begun=2):
        if item is end:
            return
        yield item  # type: ignore[misc]


def _close(future: "Future[Any]") -> None:
    if not future.cancelled() and future.exception() is None:
        close = getattr(future.result(), "close", None)
        if close is not None:
            close()

"""Reading ahead in threads, a bounded amount of it."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_parallel"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    *,
    weight: Callable[[Item], int] = lambda _: 0,
    limit: int = 0,
) -> Generator[Result]:
    """The results of `work`, in order. At most `threads` of them are begun and not taken yet; nor so many that
    their weights exceed the limit, unless it is a single one. An error of one is raised in its turn. Results that
    nobody took, because of an error, are closed if they can be."""
    pending: deque[tuple[Future[Result], int]] = deque()
    total = 0
    with ThreadPoolExecutor(threads, thread_name_prefix="cafcat-read") as pool:
        try:
            for item in items:
                own = weight(item)
                while pending and (len(pending) >= threads or total + own > limit):
                    future, done = pending.popleft()
                    total -= done
                    yield future.result()
                pending.append((pool.submit(work, item), own))
                total += own
            while pending:
                yield pending.popleft()[0].result()
        finally:
            _drop(pending)


def _drop(pending: "deque[tuple[Future[Result], int]]") -> None:
    for future, _ in pending:
        if not future.cancel() and future.exception() is None:
            close = getattr(future.result(), "close", None)
            if close is not None:
                close()

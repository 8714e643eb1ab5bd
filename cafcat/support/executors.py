"""What an executor of concurrent.futures can tell about its workers, beyond the standard library's interface."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

__all__ = ["EveryWorker", "is_local", "worker_count"]

_UNKNOWN_COUNT = 16
"""Assumed number of workers of an executor that does not tell it. Calls for which no worker is free wait."""


@runtime_checkable
class EveryWorker(Protocol):
    """An executor that can run a function once in each of its workers."""

    def run_on_each_worker(self, function: Callable[..., Any], *args: Any) -> Mapping[str, Any]:
        """Run a function in each worker, and return the results by the names of the workers.

        The result of a worker in which the function failed is the exception.
        """

    def worker_count(self) -> int:
        """Return the number of calls that the workers run at the same time."""


def is_local(executor: Executor) -> bool:
    """Return True if an executor runs its calls in processes or threads of this machine only."""
    return isinstance(executor, ProcessPoolExecutor | ThreadPoolExecutor)


def worker_count(executor: Executor) -> int:
    """Return how many calls an executor runs at the same time, or 16 if the executor does not tell it."""
    if isinstance(executor, EveryWorker):
        return max(1, executor.worker_count())
    return int(getattr(executor, "_max_workers", None) or _UNKNOWN_COUNT)

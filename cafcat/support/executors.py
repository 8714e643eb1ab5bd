"""What an executor can tell about its workers, beyond the interface of concurrent.futures."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, Final, Protocol, runtime_checkable

from cafcat.errors import (
    AccessDenied,
    CafcatError,
    CatalogOutdated,
    InvalidInput,
    Locked,
    NotInstalled,
    Unsupported,
)

__all__ = ["FINAL_ERRORS", "EveryWorker", "is_local", "shown_error", "worker_count"]

FINAL_ERRORS: Final = (AccessDenied, CatalogOutdated, InvalidInput, Locked, NotInstalled, Unsupported)
"""Errors of workers after which no further call is submitted, because it would fail, too."""

_UNKNOWN_COUNT: Final = 16
"""Assumed number of workers of an executor that does not tell it. Calls for which no worker is free wait."""


@runtime_checkable
class EveryWorker(Protocol):
    """An executor of a cluster whose workers can be examined before they get work.

    `isinstance(executor, EveryWorker)` is true for every executor with these two methods.
    """

    def run_on_each_worker(self, function: Callable[..., Any], *args: Any) -> Mapping[str, Any]:
        """Call a function once on each worker, also if the workers are busy.

        Args:
            function: A function at the top level of a module that the workers can import.
            args: Its arguments.

        Returns:
            The result of the function by the name of the worker. If the call failed, the exception is the result.
        """

    def worker_count(self) -> int:
        """Return the number of calls that the cluster runs at the same time."""


def is_local(executor: Executor) -> bool:
    """Return True if an executor runs its calls in processes or threads of this host only.

    These are the executors of concurrent.futures, and those with an attribute `is_local` that is true.
    """
    return isinstance(executor, ProcessPoolExecutor | ThreadPoolExecutor) or getattr(executor, "is_local", False)


def worker_count(executor: Executor) -> int:
    """Return how many calls an executor runs at the same time, or 16 if the executor does not tell it."""
    count = getattr(executor, "worker_count", None)
    if count is not None:
        return max(1, int(count()))
    return int(getattr(executor, "_max_workers", None) or _UNKNOWN_COUNT)


def shown_error(error: BaseException) -> str:
    """Return the text of an error of a call, for a message. Errors of an engine get the name of their class."""
    return str(error) if isinstance(error, CafcatError) else f"{type(error).__name__}: {error}"

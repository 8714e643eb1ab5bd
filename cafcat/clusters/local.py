"""Runs calls in processes of this host."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from threading import Lock, Thread
from typing import Any, Final

__all__ = ["LocalExecutor", "open_local"]

_in_call: Final = Lock()
"""Held while a process of the pool runs a call."""


@contextmanager
def open_local(count: int = 0) -> "Iterator[LocalExecutor]":
    """Start processes on this host, and yield their executor. They are ended at the end, also after an exception.

    Args:
        count: Number of processes; 0 for one per processor.
    """
    executor = LocalExecutor(count or os.cpu_count() or 1)
    try:
        yield executor
    except BaseException:
        executor.kill()
        raise
    else:
        executor.shutdown(cancel_futures=True)


class LocalExecutor(Executor):
    """A pool of processes that is replaced by a new one after a process died.

    ProcessPoolExecutor accepts no further calls after that. The calls that ran or waited when the process died end
    with BrokenProcessPool.

    Attributes:
        is_local: Always True: all calls run on this host.
    """

    is_local: Final = True

    def __init__(self, count: int) -> None:
        """Create a pool. The processes start with the first calls.

        Args:
            count: Number of processes.
        """
        self._count = count
        self._lock = Lock()
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        # A fork would copy connections and locks of this process.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._count, mp_context=context, initializer=_begin_process)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run a call in one of the processes, and return its future."""
        with self._lock:
            try:
                return self._pool.submit(_call, fn, *args, **kwargs)
            except BrokenProcessPool:
                self._pool = self._new_pool()
                return self._pool.submit(_call, fn, *args, **kwargs)

    def worker_count(self) -> int:
        """Return the number of processes."""
        return self._count

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls, and end the processes when their calls have ended.

        Args:
            wait: True to return when the processes have ended.
            cancel_futures: True to cancel the calls that have not begun.
        """
        self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)

    def kill(self) -> None:
        """Kill the processes with their calls, and accept no further calls."""
        # Python 3.14 has `kill_workers` for this.
        processes = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()


def _begin_process() -> None:
    """Prepare a process of the pool. Ctrl-C is ignored: the parent process ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, name="end with the parent", daemon=True).start()


def _call(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with _in_call:
        return fn(*args, **kwargs)


def _end_with_parent() -> None:
    """End this process if its parent was killed, after the current call. It would wait for ever for the next."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - this process was started by a pool
    wait([parent.sentinel])
    with _in_call:
        os._exit(1)

"""Futures of an executor that get their outcome from the futures of an engine."""

import contextlib
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, InvalidStateError, wait
from threading import Lock
from typing import Any

__all__ = ["RelayingExecutor"]


class RelayingExecutor(Executor):
    """An executor whose calls another library runs. Base class of the executors for Dask and Ray.

    A call that was cancelled by `Future.cancel` may go on to run on its worker if it had begun. Its result is then
    ignored.
    """

    def __init__(self, translated: Callable[[BaseException], BaseException]) -> None:
        """Create an executor.

        Args:
            translated: Returns the exception for users for an exception of the engine. The argument is a
                CancelledError if the engine has cancelled the call.
        """
        self._translated = translated
        self._lock = Lock()
        self._unfinished: set[Future[Any]] = set()
        self._is_shut_down = False

    def _check_open(self) -> None:
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _relay(self, of_engine: "Future[Any]", cancel: Callable[[], object]) -> "Future[Any]":
        """Return a future that gets the outcome of a future of the engine.

        Args:
            of_engine: The future of the engine.
            cancel: Cancels the call in the engine.
        """
        future: Future[Any] = Future()
        with self._lock:
            self._unfinished.add(future)

        def finish(done: "Future[Any]") -> None:
            with self._lock:
                self._unfinished.discard(done)
            if done.cancelled():
                # Wakes those who wait for the future.
                done.set_running_or_notify_cancel()
                with contextlib.suppress(Exception):  # the engine may be gone already
                    cancel()

        future.add_done_callback(finish)
        of_engine.add_done_callback(lambda done: self._copy(done, future))
        return future

    def _copy(self, source: "Future[Any]", target: "Future[Any]") -> None:
        error = CancelledError() if source.cancelled() else source.exception()
        with contextlib.suppress(InvalidStateError):  # the target was cancelled meanwhile
            if error is None:
                target.set_result(source.result())
            else:
                target.set_exception(self._translated(error))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls. The connection to the cluster stays open.

        Args:
            wait: True to return when all calls have ended.
            cancel_futures: True to cancel the calls that have not ended.
        """
        self._is_shut_down = True
        with self._lock:
            unfinished = list(self._unfinished)
        if cancel_futures:
            for future in unfinished:
                future.cancel()
        if wait:
            _wait(unfinished)


def _wait(futures: "list[Future[Any]]") -> None:
    """Wait until all futures are done. The parameter `wait` of `shutdown` hides the function of this name."""
    wait(futures)

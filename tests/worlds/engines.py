"""Executors whose workers die, fail or wait at a chosen moment."""

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from cafcat.catalog.chunks.commit import Commit
from cafcat.catalog.chunks.copies import Copies
from cafcat.catalog.files.mapping import Mapping
from cafcat.catalog.history.shards import Shards
from cafcat.errors import StoreFailed
from cafcat.operations.verify.chunk_check import ObjectCheck
from cafcat.reading.output_tree import OutputTree

__all__ = ["MOMENTS", "Armed", "Elsewhere", "Failing", "Silent", "Slow", "Vanishing", "process_pool"]

MOMENTS: dict[str, tuple[type, str]] = {
    "take": (Shards, "take"),
    "commit": (Commit, "commit_chunk"),
    "finish": (Shards, "finish"),
    "release": (Shards, "release"),
    "check": (ObjectCheck, "run"),
    "copy": (Copies, "commit"),
    "switch": (Copies, "switch"),
    "extract": (OutputTree, "commit"),
    "rebuild": (Mapping, "flush"),
}
"""Calls of a worker at which it can be killed: before they begin, or after they have ended."""


def process_pool(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))


class Armed(Executor):
    """Passes calls to another executor. The worker that runs the first call is killed at a moment."""

    def __init__(self, executor: Executor, moment: str, *, after: bool) -> None:
        self._executor = executor
        self._moment = moment
        self._after = after
        self._max_workers = getattr(executor, "_max_workers", 1)
        self.submitted = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        if function.__name__ == "probe":
            return self._executor.submit(function, *args, **named)
        self.submitted += 1
        if self.submitted > 1:
            return self._executor.submit(function, *args, **named)
        return self._executor.submit(killed_at, self._moment, self._after, function, *args)


def killed_at(moment: str, after: bool, function: Callable[..., Any], *args: Any) -> Any:
    kind, name = MOMENTS[moment]
    original = getattr(kind, name)

    def kill(*given: Any, **named: Any) -> Any:
        if after:
            original(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(kind, name, kill)
    return function(*args)


class Failing(Executor):
    """Runs each call in a thread of its own; the first calls raise an error instead."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self._failures = failures
        self._error = error or StoreFailed("the store does not answer")
        self._max_workers = 2
        self.submitted = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        is_probe = function.__name__ == "probe"
        self.submitted += not is_probe
        future: Future[Any] = Future()
        if not is_probe and self.submitted <= self._failures:
            future.set_exception(self._error)
        else:
            threading.Thread(target=_run, args=(future, function, args), daemon=True).start()
        return future


class Silent(Executor):
    """Runs each call in a thread of its own, and never tells the result, except that of the probe."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        if function.__name__ == "probe":
            _run(future, function, args)
        else:
            threading.Thread(target=function, args=args, daemon=True).start()
        return future


class Slow(Executor):
    """Passes calls to another executor half a second later."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        time.sleep(0.5)
        return self._executor.submit(function, *args, **named)


class Vanishing(Executor):
    """Passes calls to another executor. From the first call of a worker on, the source folder has another name."""

    def __init__(self, executor: Executor, folder: Path) -> None:
        self._executor = executor
        self._folder = folder
        self._max_workers = 1

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        if function.__name__ != "probe" and self._folder.exists():
            self._folder.rename(self._folder.with_name("moved"))
        return self._executor.submit(function, *args, **named)


class Elsewhere(Executor):
    """Runs each call at once, in this thread. A folder has another name during the probe, or during other calls."""

    def __init__(self, folder: Path, *, during_probe: bool) -> None:
        self._folder = folder
        self._during_probe = during_probe
        self._max_workers = 1

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        is_hidden = (function.__name__ == "probe") is self._during_probe
        hidden = self._folder.with_name("hidden")
        if is_hidden:
            self._folder.rename(hidden)
        _run(future, function, args)
        if is_hidden:
            hidden.rename(self._folder)
        return future


def _run(future: "Future[Any]", function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        future.set_result(function(*args))
    except BaseException as error:
        future.set_exception(error)

"""Processes of our own that work beside this one, each at the end of a pipe.

A worker is a Python that runs one function. It is not made by multiprocessing, which would run the caller's main
script again in each, nor by fork, which does not go together with threads. It is in a process group of its own:
Ctrl-C is for its parent to deal with. When its parent is gone, its pipe says so.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from cafcat.errors import Unavailable

__all__ = ["WorkerPipe", "Workers", "processors", "run_worker"]

WorkerPipe: TypeAlias = "Connection[Any, Any]"  # it has no parameters at run time

_WAIT_SECONDS: Final = 0.5
_END_SECONDS: Final = 5.0


class Workers:
    """A context manager: leaving it ends them, at once if that is because of an error."""

    def __init__(self, serve: Callable[[WorkerPipe], None], count: int, *, what: str) -> None:
        """Args: serve: what each of them runs, a function of a module; it ends when nobody is there any more to
        tell it something, which raises EOFError or OSError in it. what: they do, for messages."""
        self.pipes: list[WorkerPipe] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._what = what
        try:
            for _ in range(count):
                self._start(serve)
        except BaseException:
            self.end(at_once=True)
            raise

    def _start(self, serve: Callable[[WorkerPipe], None]) -> None:
        ours, theirs = Pipe()
        self.pipes.append(ours)
        with theirs:
            number = theirs.fileno()
            program = (
                f"import sys; sys.path[:] = {list(map(str, sys.path))!r}; from {__name__} import run_worker; "
                f"run_worker({serve.__module__!r}, {serve.__name__!r}, {number})"
            )
            # Names of files have to mean the same there.
            options = ["-X", "utf8"] if sys.flags.utf8_mode else []
            try:
                process = subprocess.Popen(
                    [sys.executable, *options, "-c", program],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[number],
                    process_group=0,
                )
            except OSError as error:
                message = f"a process of {self._what} cannot be started: {error}"
                raise Unavailable(message, hint="use -j 1") from error
            self._processes.append(process)

    def send(self, pipe: WorkerPipe, message: object) -> None:
        """Raises Unavailable if that worker died."""
        try:
            pipe.send(message)
        except OSError as error:
            raise self._died(pipe) from error

    def receive(self, pipe: WorkerPipe) -> tuple[str, Any]:
        """The next message. Raises as send does."""
        try:
            kind, value = pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died(pipe) from error
        return kind, value

    def ready(self, pipes: Sequence[WorkerPipe], seconds: float = _WAIT_SECONDS) -> list[WorkerPipe]:
        """Those that have something to say, or have ended; none if that takes too long."""
        found = wait(pipes, seconds)
        return [pipe for pipe in pipes if pipe in found]

    def _died(self, pipe: WorkerPipe) -> Unavailable:
        process = self._processes[self.pipes.index(pipe)]
        try:
            code = process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        hint = "run it again: it goes on where it was"
        return Unavailable(f"a process of {self._what} died (exit code {code})", hint=hint)

    def end(self, *, at_once: bool, seconds: float = _END_SECONDS) -> None:
        """Closes the pipes, by which a worker that waits for work ends; who does not end in so many seconds is
        killed."""
        ends_at = time.monotonic() + seconds
        for pipe in self.pipes:
            pipe.close()
        for process in self._processes:
            if at_once:
                process.kill()
            try:
                process.wait(max(0.0, ends_at - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(at_once=error is not None)


def processors() -> int:
    """How many this process may use; 1 where Python does not know how it was started."""
    if not sys.executable:
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_worker(module: str, function: str, descriptor: int) -> None:
    """What a worker's process does."""
    from importlib import import_module

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # whoever ends the parent ends us: by the pipe, and in order
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    with Connection(descriptor) as pipe:
        try:
            getattr(import_module(module), function)(pipe)
        except (EOFError, OSError):
            return

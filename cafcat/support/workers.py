"""Starts workers, each connected to its parent by a pipe, and exchanges messages with them.

A worker is a Python process that runs one function. It is not started by multiprocessing, which would run the
caller's main script again, nor by fork, which does not work with threads. Each worker has a process group of its
own, so that Ctrl-C only reaches its parent. When the parent dies, the pipe is closed, which ends the worker.

A worker may also be a thread of this process, which starts at once. It gets the same messages by a pipe. Threads
are as fast as processes if the function spends most of its time outside of Python.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from cafcat.errors import Unavailable
from cafcat.support.collecting import collect_rarely

__all__ = ["WorkerPipe", "Workers", "run_worker"]

WorkerPipe: TypeAlias = "Connection[Any, Any]"  # the class is not generic at run time
"""One end of the pipe between this process and a worker."""

_WAIT_SECONDS: Final = 0.5
"""How long `Workers.ready` waits, in seconds."""
_END_SECONDS: Final = 5.0
"""How long a worker may take to end, in seconds, until it is killed."""


class Workers:
    """A group of workers, as a context manager.

    At the end of the `with` block, the pipes are closed, which ends the workers. If the block raised an exception,
    worker processes are killed at once.

    Attributes:
        pipes: The parent's end of the pipe to each worker.
    """

    def __init__(
        self, function: Callable[[WorkerPipe], None], count: int, *, label: str, in_threads: bool = False
    ) -> None:
        """Start the workers.

        Args:
            function: The function that each worker runs. For processes, it must be at the top level of a module. It
                gets the worker's end of the pipe, and ends when reading from the pipe raises EOFError or OSError.
            count: Number of workers.
            label: Name of the workers' task, for messages.
            in_threads: True for threads of this process, False for processes.

        Raises:
            Unavailable: A process cannot be started.
        """
        self.pipes: list[WorkerPipe] = []
        self._processes: list[subprocess.Popen[bytes] | _WorkerThread] = []
        self._label = label
        self._in_threads = in_threads
        try:
            for _ in range(count):
                self._start(function)
        except BaseException:
            self.end(at_once=True)
            raise

    def _start(self, function: Callable[[WorkerPipe], None]) -> None:
        ours, theirs = Pipe()
        self.pipes.append(ours)
        if self._in_threads:
            self._processes.append(_WorkerThread(function, theirs))
            return
        with theirs:
            number = theirs.fileno()
            program = (
                f"import sys; sys.path[:] = {list(map(str, sys.path))!r}; from {__name__} import run_worker; "
                f"run_worker({function.__module__!r}, {function.__name__!r}, {number})"
            )
            # Names of files must be decoded in the same way there.
            options = ["-X", "utf8"] if sys.flags.utf8_mode else []
            try:
                process = subprocess.Popen(
                    [sys.executable, *options, "-c", program],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[number],
                    process_group=0,
                )
            except OSError as error:
                message = f"cannot start a process of {self._label}: {error}"
                raise Unavailable(message, hint="use -j 1") from error
            self._processes.append(process)

    def send(self, pipe: WorkerPipe, message: object) -> None:
        """Send a message to the worker at the other end of a pipe. Raises Unavailable if the worker died."""
        try:
            pipe.send(message)
        except OSError as error:
            raise self._died(pipe) from error

    def receive(self, pipe: WorkerPipe) -> tuple[str, Any]:
        """Wait for the next message of a worker, and return its kind and its value.

        Raises:
            Unavailable: The worker died.
        """
        try:
            kind, value = pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died(pipe) from error
        return kind, value

    def ready(self, pipes: Sequence[WorkerPipe], seconds: float = _WAIT_SECONDS) -> list[WorkerPipe]:
        """Wait until at least one pipe has a message or was closed, and return all such pipes, in the given order.

        Return an empty list if there is no such pipe within `seconds` seconds.
        """
        found = wait(pipes, seconds)
        return [pipe for pipe in pipes if pipe in found]

    def _died(self, pipe: WorkerPipe) -> Unavailable:
        process = self._processes[self.pipes.index(pipe)]
        try:
            code = process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        hint = "run the same command again: it continues where it stopped"
        return Unavailable(f"a process of {self._label} died (exit code {code})", hint=hint)

    def end(self, *, at_once: bool, seconds: float = _END_SECONDS) -> None:
        """Close the pipes, which ends workers that wait for messages, and wait until all workers have ended.

        Args:
            at_once: True to kill the worker processes first.
            seconds: How long to wait for all workers. Worker processes that run longer are killed, and threads
                are left alone.
        """
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


class _WorkerThread:
    """A worker that is a thread, with the methods of Popen that `Workers` calls."""

    def __init__(self, function: Callable[[WorkerPipe], None], pipe: WorkerPipe) -> None:
        self._is_left_alone = False
        self._thread = Thread(target=_run_in_thread, args=(function, pipe), name="cafcat-worker", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the thread has ended. Raises TimeoutExpired if it runs longer."""
        if not self._is_left_alone:
            self._thread.join(timeout)
        if self._thread.is_alive() and not self._is_left_alone:
            raise subprocess.TimeoutExpired(self._thread.name, timeout or 0.0)
        return 0

    def kill(self) -> None:
        """Leave the thread alone. It ends at its next message, or with the process."""
        self._is_left_alone = True


def _run_in_thread(function: Callable[[WorkerPipe], None], pipe: WorkerPipe) -> None:
    with pipe, suppress(EOFError, OSError):
        function(pipe)


def run_worker(module: str, function: str, descriptor: int) -> None:
    """Run the function of a worker with its end of the pipe. This is the main function of a worker process.

    Args:
        module: Name of the module of the function.
        function: Name of the function.
        descriptor: Descriptor of the worker's end of the pipe.
    """
    from importlib import import_module

    collect_rarely()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the parent handles signals, and then ends its workers
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    with Connection(descriptor) as pipe:
        try:
            getattr(import_module(module), function)(pipe)
        except (EOFError, OSError):
            return

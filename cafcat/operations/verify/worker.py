"""Checks objects of chunks and copies in worker processes.

Several processes check more objects per second, above all small files without the native part.
"""

import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from cafcat.catalog.chunks.verification import CheckResult, CheckTarget
from cafcat.errors import CafcatError
from cafcat.model import VerifyLevel
from cafcat.operations.verify.chunk_check import check_target
from cafcat.progress import Progress
from cafcat.session import Session, SessionFactory
from cafcat.support.traffic import TRAFFIC
from cafcat.support.workers import WorkerPipe, Workers

__all__ = ["Checked", "check_in_workers", "serve"]

_SEND_SECONDS: Final = 0.2
"""Shortest time between two messages with the progress of a worker, in seconds."""


class Checked(NamedTuple):
    """The object of a chunk or copy that a worker process has checked.

    Attributes:
        target: The object.
        result: The result of the check; None if the check found damage, but prune deleted the object meanwhile.
    """

    target: CheckTarget
    result: CheckResult | None


def check_in_workers(
    session: Session, count: int, targets: Iterator[CheckTarget], level: VerifyLevel
) -> Generator[Checked, None, None]:
    """Check objects in worker processes, and yield each with its result, in the order in which the checks end.

    A worker gets the next object when it has finished one.

    Args:
        session: Receives the progress, and can stop the checks.
        count: Number of worker processes.
        targets: The objects to check.
        level: INDEX or DATA.

    Raises:
        Unavailable: A worker died.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    with Workers(serve, count, label="verify") as workers:
        busy: dict[WorkerPipe, CheckTarget] = {}

        def send_next(pipe: WorkerPipe) -> None:
            target = next(targets, None)
            if target is not None:
                workers.send(pipe, (target, level))
                busy[pipe] = target

        settings = session.settings
        if settings.bandwidth is not None:
            settings = replace(settings, bandwidth=max(1, settings.bandwidth // count))
        for pipe in workers.pipes:
            workers.send(pipe, SessionFactory(settings))
            send_next(pipe)
        while busy:
            session.checkpoint()
            for pipe in workers.ready(list(busy)):
                kind, value = workers.receive(pipe)
                if kind == "advance":
                    session.progress.advance(*value)
                elif kind == "error":
                    raise value
                else:
                    yield Checked(busy.pop(pipe), value)
                    send_next(pipe)


def serve(pipe: WorkerPipe) -> None:
    """Check objects that the parent process sends. This is the main function of a worker process of verify.

    The first message from the parent is a SessionFactory; each further message is a pair of a CheckTarget and a
    VerifyLevel. Each message to the parent is a pair of a kind and a value: "advance" (files and bytes), "done"
    (the result of a check) or "error". The function ends by EOFError or OSError when the parent closes the pipe.

    Args:
        pipe: This process's end of the pipe to the parent process.
    """
    factory: SessionFactory = pipe.recv()
    progress = _SentProgress(pipe)
    session = factory(progress)
    try:
        while True:
            target, level = pipe.recv()
            try:
                with TRAFFIC.bandwidth(session.settings.bandwidth):
                    result = check_target(session, target, level)
            except CafcatError as error:
                pipe.send(("error", error))
                continue
            progress.flush()
            pipe.send(("done", result))
    finally:
        session.close()


class _SentProgress(Progress):
    """Sends the progress of a worker to its parent process: at most five times a second, and after each check."""

    def __init__(self, pipe: WorkerPipe) -> None:
        self._pipe = pipe
        self._files = self._size_bytes = 0
        self._last_sent = time.monotonic()

    def advance(self, files: int, size_bytes: int) -> None:
        """Count files and bytes. Send them 0.2 seconds after the last time. Raises OSError if the parent died."""
        self._files += files
        self._size_bytes += size_bytes
        if time.monotonic() - self._last_sent >= _SEND_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send the counts of files and bytes that were not sent yet."""
        self._pipe.send(("advance", (self._files, self._size_bytes)))
        self._files = self._size_bytes = 0
        self._last_sent = time.monotonic()

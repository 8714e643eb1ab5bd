"""Checks of objects in worker processes.

With small files, most of the time is spent in Python: then several processes check more objects per second.
"""

import time
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from cafcat.catalog.chunks.verification import CheckResult, CheckTarget
from cafcat.errors import CafcatError
from cafcat.model import VerifyLevel
from cafcat.operations.verify.chunk_check import check_target
from cafcat.progress import Progress
from cafcat.session import Session, SessionFactory
from cafcat.support.workers import WorkerPipe, Workers

__all__ = ["Checked", "check_in_workers", "serve"]

_SEND_SECONDS: Final = 0.2
"""A worker sends its progress to the parent after so many seconds."""


class Checked(NamedTuple):
    """An object and its result; None if the object was deleted meanwhile."""

    target: CheckTarget
    result: CheckResult | None


def check_in_workers(
    session: Session, count: int, targets: Iterator[CheckTarget], level: VerifyLevel
) -> Generator[Checked, None, None]:
    """Check objects in worker processes. A worker gets the next object when it has finished one.

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

        for pipe in workers.pipes:
            workers.send(pipe, SessionFactory(session.settings))
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
    """Check objects in a worker process until the parent closes the pipe.

    The first message is a SessionFactory; each further message is an object and a level.
    """
    factory: SessionFactory = pipe.recv()
    progress = _SentProgress(pipe)
    session = factory(progress)
    try:
        while True:
            target, level = pipe.recv()
            try:
                result = check_target(session, target, level)
            except CafcatError as error:
                pipe.send(("error", error))
                continue
            progress.flush()
            pipe.send(("done", result))
    finally:
        session.close()


class _SentProgress(Progress):
    """Sends progress to the parent, a few times a second. Raises OSError if the parent is gone."""

    def __init__(self, pipe: WorkerPipe) -> None:
        self._pipe = pipe
        self._files = self._size_bytes = 0
        self._last_sent = time.monotonic()

    def advance(self, files: int, size_bytes: int) -> None:
        """Count progress, and send the count from time to time."""
        self._files += files
        self._size_bytes += size_bytes
        if time.monotonic() - self._last_sent >= _SEND_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send the progress that was not sent yet."""
        self._pipe.send(("advance", (self._files, self._size_bytes)))
        self._files = self._size_bytes = 0
        self._last_sent = time.monotonic()

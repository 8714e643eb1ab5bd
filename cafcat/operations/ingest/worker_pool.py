"""Several packers, each in a process of its own with chunks of its own; the work goes to whoever is free."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from types import TracebackType
from typing import Final, Self

from cafcat.errors import Unavailable
from cafcat.events import ChunkCommitted
from cafcat.model import IngestReport
from cafcat.operations.ingest.packer import PendingFile
from cafcat.operations.ingest.worker import Piece, Setup, serve
from cafcat.scanning.batches import SourceBroke
from cafcat.session import Session
from cafcat.sources.base import Opener
from cafcat.support.workers import WorkerPipe, Workers

__all__ = ["WorkerPool", "total"]

_PIECE_FILES: Final = 500
_PIECE_BYTES: Final = 16 << 20
"""A piece has no more files, nor, unless it is a single one, more bytes: nobody is left with much to do alone."""
_PIECES_AHEAD: Final = 8
"""So many pieces a worker has at a time. The first wait while its Python starts."""
_END_SECONDS: Final = 60.0
"""Time for a worker to remove what it has written, after an error."""


class WorkerPool:
    """A context manager: leaving it because of an error leaves nothing of open chunks; leave it otherwise after
    finish. Paths have to be distinct between two calls of finish."""

    def __init__(self, session: Session, setup: Setup, count: int) -> None:
        self._session = session
        self._workers = Workers(serve, count, label="ingest")
        self._busy: Counter[WorkerPipe] = Counter()
        self._unfinished: set[WorkerPipe] = set()
        self._reports: dict[WorkerPipe, IngestReport] = {}
        self._last_path = ""
        self._is_stopped = False
        try:
            for pipe in self._workers.pipes:
                self._workers.send(pipe, setup)
        except BaseException:
            self._workers.end(at_once=True)
            raise

    def may_contain(self, path: str) -> bool:
        """False if no worker has that path in its open chunk. True may be wrong, for paths that do not ascend."""
        return bool(self._unfinished) and path <= self._last_path

    def pack(self, opener: Opener, wanted: Sequence[PendingFile]) -> None:
        """Has these files packed, some of them later. Raises SourceBroke, what a worker raises, Unavailable if one
        died, and what `Session.checkpoint` raises."""
        for piece in _pieces(wanted):
            if self.stopped():
                return
            pipe = self._free_worker()
            self._send(pipe, ("take", Piece(opener, piece)))
            self._busy[pipe] += 1
            self._unfinished.add(pipe)
            self._last_path = piece[-1].file.path

    def finish(self) -> None:
        """Has all open chunks committed, and waits for that. Errors as of take."""
        waiting = set(self._unfinished)
        for pipe in waiting:
            self._send(pipe, ("finish", None))
        while self._unfinished:
            self.stopped()
            self._listen(list(self._unfinished))

    def stopped(self) -> bool:
        """Return True if the run is to end. The workers get a message about that once."""
        if self._session.should_end() and not self._is_stopped:
            self._is_stopped = True
            for pipe in self._workers.pipes:
                self._send(pipe, ("stop", None))
        return self._is_stopped

    def _send(self, pipe: WorkerPipe, message: tuple[str, object]) -> None:
        """One that is not there to hear it may have said why."""
        try:
            self._workers.send(pipe, message)
        except Unavailable:
            with suppress(Unavailable):
                while True:
                    self._receive(pipe)
            raise

    @property
    def reports(self) -> Sequence[IngestReport]:
        """What each worker has done, as far as it has told."""
        return list(self._reports.values())

    def _free_worker(self) -> WorkerPipe:
        """The one with the least to do, when it has room for more."""
        while True:
            self._listen(self._workers.pipes, 0)
            pipe = min(self._workers.pipes, key=self._busy.__getitem__)
            if self._busy[pipe] < _PIECES_AHEAD:
                return pipe
            self.stopped()
            self._listen(self._workers.pipes)

    def _listen(self, pipes: Sequence[WorkerPipe], seconds: float | None = None) -> None:
        ready = self._workers.ready(pipes) if seconds is None else self._workers.ready(pipes, seconds)
        for pipe in ready:
            self._receive(pipe)

    def _receive(self, pipe: WorkerPipe) -> None:
        kind, value = self._workers.receive(pipe)
        if kind == "advance":
            self._session.progress.advance(*value)
        elif kind == "event":
            self._session.emit(value)
        elif kind == "report":
            self._reports[pipe] = value
        elif kind == "done":
            self._busy[pipe] -= 1
        elif kind == "finished":
            self._unfinished.discard(pipe)
        elif kind == "broke":
            raise SourceBroke(value)
        else:
            raise value

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self._give_up()
        finally:
            self._workers.end(at_once=False, seconds=_END_SECONDS)

    def _give_up(self) -> None:
        """Hears what each worker has to say until it has removed what is open: what it has committed counts."""
        left = set(self._workers.pipes)
        for pipe in self._workers.pipes:
            with suppress(Unavailable):
                self._workers.send(pipe, ("give up", None))
        ends_at = time.monotonic() + _END_SECONDS
        while left and time.monotonic() < ends_at:
            for pipe in self._workers.ready(list(left)):
                try:
                    kind, value = self._workers.receive(pipe)
                except Unavailable:
                    left.discard(pipe)
                    continue
                if kind == "report":
                    self._reports[pipe] = value
                elif kind == "event" and isinstance(value, ChunkCommitted):
                    self._session.emit(value)


def total(reports: Sequence[IngestReport]) -> IngestReport:
    """The first report, with the counts of all."""
    first = reports[0]
    values = {field.name: getattr(first, field.name) for field in fields(first)}
    for name, value in values.items():
        if type(value) is int and name != "run":
            values[name] = sum(getattr(report, name) for report in reports)
    values["interrupted"] = any(report.interrupted for report in reports)
    return IngestReport(**values)


def _pieces(wanted: Sequence[PendingFile]) -> Iterator[Sequence[PendingFile]]:
    begin = size_bytes = 0
    for n, want in enumerate(wanted):
        size_bytes += want.file.size_bytes
        if n > begin and (size_bytes > _PIECE_BYTES or n - begin >= _PIECE_FILES):
            yield wanted[begin:n]
            begin, size_bytes = n, want.file.size_bytes
    if begin < len(wanted):
        yield wanted[begin:]

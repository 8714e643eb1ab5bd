"""A pool of workers, which are threads or processes that pack files, for the coordinator of an ingest.

Each worker fills its own chunks. The worker with the fewest unfinished pieces gets the next one.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from types import TracebackType
from typing import Final, Self

from cafcat.errors import Unavailable
from cafcat.events import ChunkCommitted
from cafcat.operations.ingest.packer import PendingFile
from cafcat.operations.ingest.worker import ColumnPiece, Piece, Setup, serve
from cafcat.reports import IngestReport
from cafcat.scanning.batches import SourceBroke
from cafcat.session import Session
from cafcat.sources.base import Opener
from cafcat.sources.local.columns import FileColumns
from cafcat.support.workers import WorkerPipe, Workers

__all__ = ["WorkerPool"]

_PIECE_FILES: Final = 1000
_PIECE_BYTES: Final = 16 << 20
"""Most files and bytes that are sent to a worker in one piece, so that all workers finish at about the same time. A
piece of a single file may be larger."""
_PIECES_AHEAD: Final = 8
"""Largest number of unfinished pieces that one worker has. The first ones wait while the worker starts."""
_END_SECONDS: Final = 60.0
"""How long workers may take to end, in seconds. After an error they remove the objects that they were writing."""


class WorkerPool:
    """Workers that pack files, as a context manager.

    Without an error, call `finish` before the end of the `with` block. An error that leaves the block makes the
    workers abandon their open chunks. Between two calls of `finish`, all paths must be distinct.
    """

    def __init__(self, session: Session, setup: Setup, count: int) -> None:
        """Start the workers of the ingest.

        Args:
            session: Receives the progress and the events of the workers.
            setup: How the workers open their sessions and write chunks.
            count: Number of workers.

        Raises:
            Unavailable: A worker cannot be started.
        """
        self._session = session
        run = partial(serve, pause=session.pause) if setup.in_threads else serve
        self._workers = Workers(run, count, label="ingest", in_threads=setup.in_threads)
        self._busy: Counter[WorkerPipe] = Counter()
        self._unfinished: set[WorkerPipe] = set()
        self._reports: dict[WorkerPipe, IngestReport] = {}
        self._last_path = ""
        self._stop_sent = False
        try:
            for pipe in self._workers.pipes:
                self._workers.send(pipe, setup)
        except BaseException:
            self._workers.end(at_once=True)
            raise

    def may_contain(self, path: str) -> bool:
        """Return False if no worker has a file of this path, or a larger one, in its open chunk. True can be wrong.

        This requires that paths are packed in ascending order between two calls of `finish`.
        """
        return bool(self._unfinished) and path <= self._last_path

    def pack(self, opener: Opener, pending: Sequence[PendingFile]) -> None:
        """Send files to the workers. This returns before all of them are packed.

        If the user ends the ingest, the files that were not sent yet are not packed.

        Args:
            opener: Opens the files. It is pickled and sent to the workers.
            pending: The files.

        Raises:
            SourceBroke: No further file of the source can be read.
            Unavailable: A worker died.
            CafcatError: An error of a worker, or of `Session.checkpoint`.
        """
        for piece in _pieces(pending):
            if self.is_stopping():
                return
            self._assign(Piece(opener, piece), piece[-1].file.path)

    def pack_columns(self, opener: Opener, files: FileColumns, source_id: int) -> None:
        """Send files in columns to the workers, as `pack` does.

        Args:
            opener: Opens the files. It is pickled and sent to the workers.
            files: The files.
            source_id: `sources.id` of the files.

        Raises the errors of `pack`.
        """
        for piece in files.pieces(_PIECE_FILES, _PIECE_BYTES):
            if self.is_stopping():
                return
            self._assign(ColumnPiece(opener, piece, source_id), piece.last_path)

    def _assign(self, piece: Piece | ColumnPiece, last_path: str) -> None:
        """Send a piece to the worker with the fewest unfinished pieces."""
        pipe = self._free_worker()
        self._send(pipe, ("pack", piece))
        self._busy[pipe] += 1
        self._unfinished.add(pipe)
        self._last_path = last_path

    def finish(self) -> None:
        """Let all workers commit their open chunks, and wait until they have done so.

        Raises:
            SourceBroke: No further file of the source can be read.
            Unavailable: A worker died.
            CafcatError: An error of a worker, or of `Session.checkpoint`.
        """
        waiting = set(self._unfinished)
        for pipe in waiting:
            self._send(pipe, ("finish", None))
        while self._unfinished:
            self.is_stopping()
            self._listen(list(self._unfinished))

    def is_stopping(self) -> bool:
        """Return True if the user ends the ingest. The first time, send "stop" to each worker."""
        if self._session.should_end() and not self._stop_sent:
            self._stop_sent = True
            for pipe in self._workers.pipes:
                self._send(pipe, ("stop", None))
        return self._stop_sent

    def _send(self, pipe: WorkerPipe, message: tuple[str, object]) -> None:
        """Send a message to a worker. If the worker died, raise the error that it sent before, or Unavailable."""
        try:
            self._workers.send(pipe, message)
        except Unavailable:
            with suppress(Unavailable):
                while True:
                    self._receive(pipe)
            raise

    def total(self, own: IngestReport) -> IngestReport:
        """Return a report whose counts are the sums over this process and all workers.

        Args:
            own: The report of this process. It is not changed.
        """
        reports = [own, *self._reports.values()]
        values = {field.name: getattr(own, field.name) for field in fields(own)}
        for name, value in values.items():
            if type(value) is int and name != "run":
                values[name] = sum(getattr(report, name) for report in reports)
        values["interrupted"] = any(report.interrupted for report in reports)
        return IngestReport(**values)

    def _free_worker(self) -> WorkerPipe:
        """Wait until a worker has fewer than `_PIECES_AHEAD` unfinished pieces, and return its pipe."""
        while True:
            self._listen(self._workers.pipes, 0)
            pipe = min(self._workers.pipes, key=self._busy.__getitem__)
            if self._busy[pipe] < _PIECES_AHEAD:
                return pipe
            self.is_stopping()
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
                self._abort()
        finally:
            self._workers.end(at_once=False, seconds=_END_SECONDS)

    def _abort(self) -> None:
        """Send "abort" to all workers, and wait until they have ended, at most `_END_SECONDS`.

        They abandon their open chunks. Chunks that they committed before are counted and reported.
        """
        left = set(self._workers.pipes)
        for pipe in self._workers.pipes:
            with suppress(Unavailable):
                self._workers.send(pipe, ("abort", None))
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


def _pieces(pending: Sequence[PendingFile]) -> Iterator[Sequence[PendingFile]]:
    begin = size_bytes = 0
    for n, item in enumerate(pending):
        size_bytes += item.file.size_bytes
        if n > begin and (size_bytes > _PIECE_BYTES or n - begin >= _PIECE_FILES):
            yield pending[begin:n]
            begin, size_bytes = n, item.file.size_bytes
    if begin < len(pending):
        yield pending[begin:]

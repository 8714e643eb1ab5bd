"""A worker of an ingest: a process or thread that packs files, which the coordinator chose, into its own chunks."""

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass
from itertools import starmap
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

from cafcat.catalog.chunks.owners import owner_name
from cafcat.errors import CafcatError, StoreFailed
from cafcat.events import ChunkCommitted, Event, Warned
from cafcat.formats import registry as formats
from cafcat.model import OnConflict, SourceFile
from cafcat.operations.ingest.packer import Packer, PendingFile
from cafcat.operations.shared_limits import with_shared_limits
from cafcat.progress import Pause, Progress
from cafcat.reports import IngestReport
from cafcat.scanning.batches import SourceBroke
from cafcat.scanning.positions import Positions
from cafcat.session import Session, SessionFactory
from cafcat.sources.base import Opener
from cafcat.sources.local.columns import FileColumns
from cafcat.support.workers import WorkerPipe
from cafcat.writing.chunk import ChunkTarget
from cafcat.writing.limits import Limits

__all__ = ["ColumnPiece", "Piece", "Setup", "serve"]

_SENT_FILES: Final = 1000
_SENT_BYTES: Final = 16 << 20
"""A worker sends its counts to the coordinator after so many files or bytes."""


@dataclass(frozen=True, slots=True)
class Setup:
    """First message of the coordinator to a worker: how to open a session, and how to write chunks.

    Attributes:
        open_session: Opens the session of the worker.
        store: URL of the store for new chunks.
        format: Name of the format of new chunks.
        run: `ingest_runs.id` of the ingest; None if chunks are packed without a run.
        limits: When a chunk is full.
        on_conflict: Action of a commit for a path that another process entered into the catalog meanwhile.
        in_threads: True if the workers are threads of the coordinator's process, which reports their warnings and
            keeps the limits for their requests.
    """

    open_session: SessionFactory
    store: str
    format: str
    run: int | None
    limits: Limits
    on_conflict: OnConflict
    in_threads: bool = False


class Piece:
    """A part of the work, as it is sent to a worker: some files to pack, and how to open them.

    The files are sent as plain tuples, because sending named tuples takes three times as long.
    """

    def __init__(self, opener: Opener, pending: Sequence[PendingFile]) -> None:
        self._opener = opener
        self._files = [tuple(item.file) for item in pending]
        self._replaces = [n for n, item in enumerate(pending) if item.replaces]
        self._source_ids = [item.source_id for item in pending]

    def pack(self, packer: Packer) -> None:
        """Pack the files in this worker, unless the user ends the ingest.

        Raises the errors of `Packer.pack`, such as SourceBroke and StoreFailed.
        """
        if packer.is_stopping():
            return
        replaces = frozenset(self._replaces)
        files = zip(starmap(SourceFile, self._files), self._source_ids, strict=True)
        packer.pack(
            self._opener, [PendingFile(file, n in replaces, source_id) for n, (file, source_id) in enumerate(files)]
        )


class ColumnPiece:
    """A part of the work as `Piece`: files in columns."""

    def __init__(self, opener: Opener, files: FileColumns, source_id: int) -> None:
        self._opener = opener
        self._files = files
        self._source_id = source_id

    def pack(self, packer: Packer) -> None:
        """Pack the files in this worker, unless the user ends the ingest. Raises as `Piece.pack`."""
        if not packer.is_stopping():
            packer.pack_columns(self._opener, self._files, self._source_id)


class Aborted(Exception):
    """The ingest failed in the coordinator or in another worker, or the process of the coordinator died."""


class _Inbox:
    """The messages that this worker gets from the coordinator.

    A thread receives them, so a full pipe never blocks the coordinator while this worker waits for the coordinator.

    Attributes:
        is_stopped: True once the coordinator has sent "stop", because the user ends the ingest.
        is_aborted: True once the coordinator has sent "abort", because the ingest failed, or its process has
            died.
    """

    def __init__(self, pipe: WorkerPipe) -> None:
        self._pipe = pipe
        self._messages: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.is_stopped = False
        self.is_aborted = False
        Thread(target=self._listen, name="cafcat-inbox", daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                kind, value = self._pipe.recv()
                if kind == "stop":
                    self.is_stopped = True
                elif kind == "abort":
                    break
                else:
                    self._messages.put((kind, value))
        except (EOFError, OSError, TypeError):
            pass  # TypeError: the process ends, and the pipe was closed between two steps of recv
        self.is_aborted = True
        self._messages.put(("abort", None))

    def receive(self) -> tuple[str, Any]:
        """Wait for the next message of the coordinator, and return its kind and value.

        A "stop" is not returned, but sets `is_stopped`. If the coordinator sent "abort", or its process died, the
        result is ("abort", None).
        """
        return self._messages.get()


class _ToCoordinator(logging.Handler):
    """Sends warnings of the logger "cafcat" to the coordinator, which reports them to the user."""

    def __init__(self, pipe: WorkerPipe) -> None:
        super().__init__(logging.WARNING)
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        """Send the text of a log record to the coordinator, as a Warned event."""
        self._pipe.send(("event", Warned(record.getMessage())))


class _SentProgress(Progress):
    """Progress of a worker: sends counts and events to the coordinator, which can stop the worker.

    Attributes:
        report: The report of the worker's packer, which is sent before each event of a commit.
    """

    def __init__(self, pipe: WorkerPipe, inbox: _Inbox) -> None:
        self._pipe = pipe
        self._inbox = inbox
        self._files = self._bytes = 0
        self.report: IngestReport | None = None

    def advance(self, files: int, size_bytes: int) -> None:
        """Count files and bytes. Send the counts after `_SENT_FILES` or `_SENT_BYTES`."""
        self._files += files
        self._bytes += size_bytes
        if self._files >= _SENT_FILES or self._bytes >= _SENT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send the counts of files and bytes that were not sent yet."""
        self._pipe.send(("advance", (self._files, self._bytes)))
        self._files = self._bytes = 0

    def emit(self, event: Event) -> None:
        """Send an event to the coordinator. Before the event of a commit, send the report that counts it."""
        if isinstance(event, ChunkCommitted):
            self.flush()
            self._pipe.send(("report", self.report))
        self._pipe.send(("event", event))

    @property
    def stopping(self) -> bool:
        """True if the coordinator has sent "stop": the user ends the ingest."""
        return self._inbox.is_stopped

    def checkpoint(self) -> None:
        """Raise Aborted if the coordinator has sent "abort", or its process has died."""
        if self._inbox.is_aborted:
            raise Aborted


def serve(pipe: WorkerPipe, pause: Pause | None = None) -> None:
    """Pack files that the coordinator sends. This is the main function of a worker of an ingest.

    The first message is a Setup. Each further message is a pair: ("pack", Piece or ColumnPiece), ("finish", None)
    to commit the open chunk, ("stop", None) to pack no further files, or ("abort", None). After "abort", or if the
    process of the coordinator dies, the open chunk is abandoned.

    Each message to the coordinator is a pair of a kind and a value: "advance" (files and bytes), "event",
    "report" (all counts so far), "done" (a piece was handled), "broke" (the error of a source), "finished" (the
    open chunk was committed), or "error", after which the worker ends.

    Args:
        pipe: This worker's end of the pipe to the coordinator.
        pause: The pause of the coordinator's session, if the worker is a thread of its process. None: the worker
            finds out by itself whether the run is paused.
    """
    setup: Setup = pipe.recv()
    inbox = _Inbox(pipe)
    if not setup.in_threads:
        logging.getLogger("cafcat").addHandler(_ToCoordinator(pipe))
    try:
        progress = _SentProgress(pipe, inbox)
        with closing(setup.open_session(progress)) as session:
            session.catalog.announce_waits(progress)
            session.pause = pause or session.pause
            limits: AbstractContextManager[None] = nullcontext()
            if not setup.in_threads:
                limits = with_shared_limits(session, [setup.store], setup.run, reports_pauses=False)
            with limits:
                _serve(pipe, inbox, setup, session, progress)
    except Aborted:
        return
    except BaseException as error:  # noqa: BLE001 - the coordinator raises it
        pipe.send(("error", _sendable(error)))


def _serve(pipe: WorkerPipe, inbox: _Inbox, setup: Setup, session: Session, progress: _SentProgress) -> None:
    owner = owner_name(f"run {setup.run}")
    archive_format = formats.by_name(setup.format)
    target = ChunkTarget(session.catalog, session.stores[setup.store], archive_format, setup.run, owner)
    packer = Packer(session, target, setup.limits, setup.on_conflict, Positions())
    progress.report = packer.report
    try:
        _pack(pipe, inbox, packer, progress)
    except BaseException as error:
        packer.abandon("the ingest was aborted" if inbox.is_aborted else f"the ingest failed: {error}")
        packer.problems.record()
        progress.flush()
        pipe.send(("report", packer.report))
        raise


def _pack(pipe: WorkerPipe, inbox: _Inbox, packer: Packer, progress: _SentProgress) -> None:
    while True:
        kind, value = inbox.receive()
        if kind == "abort":
            raise Aborted
        if kind == "finish":
            packer.finish_chunk()
            packer.problems.record()
            progress.flush()
            pipe.send(("report", packer.report))
            pipe.send(("finished", None))
        else:
            try:
                value.pack(packer)
            except SourceBroke as broke:
                pipe.send(("broke", broke.reason))
            pipe.send(("done", None))


def _sendable(error: BaseException) -> CafcatError:
    """Return a CafcatError without its causes, which may not be picklable; StoreFailed for any other exception."""
    if isinstance(error, CafcatError):
        with suppress(Exception):
            error.__cause__ = error.__context__ = None
        return error
    return StoreFailed(f"a worker of the ingest failed: {error!r}")

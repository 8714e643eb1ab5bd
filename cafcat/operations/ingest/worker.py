"""A process that packs: it reads files that another has found and decided to take, and fills chunks of its own."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import starmap
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

from cafcat.catalog.chunks.owners import owner_name
from cafcat.errors import CafcatError, StoreFailed
from cafcat.formats import registry as formats
from cafcat.model import FileProblem, IngestReport, OnConflict, SourceFile
from cafcat.operations.ingest.packer import Packer, PendingFile
from cafcat.progress import Progress
from cafcat.scanning.batches import SourceBroke
from cafcat.sources.base import Opener
from cafcat.support.workers import WorkerPipe
from cafcat.writing.chunk import ChunkTarget
from cafcat.writing.limits import Limits
from cafcat.writing.rooms import Rooms

__all__ = ["Piece", "Setup", "serve"]

_TOLD_FILES: Final = 1000
_TOLD_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker has to know. store: a URL; run: ingest_runs.id."""

    rooms: Rooms
    store: str
    format: str
    run: int | None
    limits: Limits
    on_conflict: OnConflict


class Piece:
    """Files to pack, as they are sent to a worker: plain tuples, which cost a third of named ones."""

    def __init__(self, opener: Opener, wanted: Sequence[PendingFile]) -> None:
        self._opener = opener
        self._files = [tuple(want.file) for want in wanted]
        self._replaces = [n for n, want in enumerate(wanted) if want.replaces]
        self._source_ids = [want.source_id for want in wanted]

    def take(self, packer: Packer) -> None:
        """Errors of Packer.take."""
        replaces = frozenset(self._replaces)
        files = zip(starmap(SourceFile, self._files), self._source_ids, strict=True)
        packer.take(
            self._opener, [PendingFile(file, n in replaces, source_id) for n, (file, source_id) in enumerate(files)]
        )


class GivenUp(Exception):
    """The run has ended by an error, or the process that led it has."""


class _Inbox:
    """What the parent says, taken in by a thread: so it never waits for us to listen while we wait for it."""

    def __init__(self, pipe: WorkerPipe) -> None:
        self._pipe = pipe
        self._messages: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.is_stopped = False
        self.is_given_up = False
        Thread(target=self._listen, name="cafcat-inbox", daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                kind, value = self._pipe.recv()
                if kind == "stop":
                    self.is_stopped = True
                elif kind == "give up":
                    break
                else:
                    self._messages.put((kind, value))
        except (EOFError, OSError):
            pass
        self.is_given_up = True
        self._messages.put(("give up", None))

    def take(self) -> tuple[str, Any]:
        """The next message; waits for it."""
        return self._messages.get()

    def should_stop(self) -> bool:
        """Raises GivenUp if nobody wants what is open any more, or nobody is there."""
        if self.is_given_up:
            raise GivenUp
        return self.is_stopped


class _ToParent(logging.Handler):
    """Sends warnings of the logger "cafcat" to the parent, which shows them as its own."""

    def __init__(self, pipe: WorkerPipe) -> None:
        super().__init__(logging.WARNING)
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        self._pipe.send(("warn", record.getMessage()))


class _Told(Progress):
    """Tells the parent."""

    def __init__(self, pipe: WorkerPipe) -> None:
        self._pipe = pipe
        self._files = self._bytes = 0
        self.report: IngestReport | None = None

    def advance(self, files: int, size_bytes: int) -> None:
        self._files += files
        self._bytes += size_bytes
        if self._files >= _TOLD_FILES or self._bytes >= _TOLD_BYTES:
            self.flush()

    def flush(self) -> None:
        """What was not told yet."""
        self._pipe.send(("advance", (self._files, self._bytes)))
        self._files = self._bytes = 0

    def problem(self, problem: FileProblem) -> None:
        self._pipe.send(("problem", problem))

    def warn(self, message: str) -> None:
        self._pipe.send(("warn", message))

    def chunk_committed(self, chunk: str, files: int, size_bytes: int) -> None:
        self.flush()
        self._pipe.send(("report", self.report))
        self._pipe.send(("committed", (chunk, files, size_bytes)))


def serve(pipe: WorkerPipe) -> None:
    """Packs pieces until it is told to finish, again and again, until it is told to give up or nobody is there to
    tell it anything: then nothing is left of the open chunk. Each message to the parent is a kind and a value."""
    setup: Setup = pipe.recv()
    inbox = _Inbox(pipe)
    logging.getLogger("cafcat").addHandler(_ToParent(pipe))
    try:
        catalog, store_of = setup.rooms()
        catalog.announce_waits(lambda message: pipe.send(("warn", message)))
        try:
            owner = owner_name(f"run {setup.run}")
            place = ChunkTarget(catalog, store_of(setup.store), formats.by_name(setup.format), setup.run, owner)
            _serve(pipe, inbox, setup, place)
        finally:
            catalog.close()
    except GivenUp:
        return
    except BaseException as error:  # noqa: BLE001 - it is raised by the parent
        pipe.send(("error", _sendable(error)))


def _serve(pipe: WorkerPipe, inbox: _Inbox, setup: Setup, place: ChunkTarget) -> None:
    told = _Told(pipe)
    packer = Packer(
        place, setup.limits, on_conflict=setup.on_conflict, progress=told, should_stop=inbox.should_stop
    )
    told.report = packer.report
    try:
        _pack(pipe, inbox, packer, told)
    except BaseException as error:
        packer.abandon("the run was given up" if inbox.is_given_up else f"the run ended: {error}")
        packer.problems.record()
        told.flush()
        pipe.send(("report", packer.report))
        raise


def _pack(pipe: WorkerPipe, inbox: _Inbox, packer: Packer, told: _Told) -> None:
    while True:
        kind, value = inbox.take()
        if kind == "give up":
            raise GivenUp
        if kind == "finish":
            packer.finish_chunk()
            packer.problems.record()
            told.flush()
            pipe.send(("report", packer.report))
            pipe.send(("finished", None))
        else:
            try:
                value.take(packer)
            except SourceBroke as broke:
                pipe.send(("broke", broke.reason))
            pipe.send(("done", None))


def _sendable(error: BaseException) -> CafcatError:
    """The error without what cannot go through a pipe."""
    if isinstance(error, CafcatError):
        with suppress(Exception):
            error.__cause__ = error.__context__ = None
        return error
    return StoreFailed(f"a process of the ingest failed: {error!r}")

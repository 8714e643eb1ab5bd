"""Packs the files that a program adds into chunks, and commits them as an ingest does."""

import time
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import BinaryIO, Final, Self

from cafcat import __version__
from cafcat.catalog.chunks.owners import owner_name
from cafcat.errors import CafcatError, InvalidInput, Refused, SourceFailed
from cafcat.events import Event
from cafcat.formats import registry as formats
from cafcat.formats.registry import LOGS
from cafcat.model import Comparison, FileProblem, OnConflict, ProblemKind, RunState
from cafcat.operations.ingest.coordinator import Ingest
from cafcat.operations.ingest.run import prepared_store
from cafcat.operations.new_store import list_new_store
from cafcat.operations.write.contents import GivenContents, GivenFile
from cafcat.operations.write.options import WriteOptions
from cafcat.progress import Progress
from cafcat.reports import IngestReport
from cafcat.scanning.opening import SourceOptions
from cafcat.session import Session
from cafcat.sources.names import check_name, member_name
from cafcat.support.arguments import member_of
from cafcat.support.paths import check_text
from cafcat.writing.chunk import ChunkTarget
from cafcat.writing.limits import WHOLE_FILE_BYTES, Limits

__all__ = ["Writer"]

_BATCH_FILES: Final = 1_000
_BATCH_BYTES: Final = 8 << 20
"""Most files and bytes that wait in memory until they are packed together."""


class Writer:
    """Packs files whose contents a program gives. Use a writer as a context manager.

    Files become visible in the catalog when their chunk is committed: when it is full, by `commit`, and at the end
    of the `with` block. Each chunk is committed in one transaction. An error that leaves the block abandons the
    open chunk; chunks that were committed before stay. A writer must not be used by several threads at once.

    Attributes:
        report: Numbers of the files and chunks that were committed so far.
    """

    def __init__(self, session: Session, options: WriteOptions) -> None:
        """Check the options. The store and the catalog are used from `__enter__` on.

        Raises:
            InvalidInput: One of the options is not valid.
            Unsupported, NotInstalled: Chunks of the format cannot be written here.
        """
        if options.format == LOGS:
            raise InvalidInput(f"a writer cannot make archives of logs ({LOGS})", hint="use Repository.ingest")
        self._problems = _Problems(session.progress)
        self._session = replace(session, progress=self._problems)
        self._options = options
        self._on_conflict = member_of(OnConflict, options.on_conflict, "on_conflict")
        self._format = formats.for_new_chunks(options.format)
        size_bytes = options.target_size
        self._limits = Limits(session.settings.target_size if size_bytes is None else size_bytes)
        self._limits.check()
        self._source = GivenContents()
        self._ingest: Ingest | None = None
        self._run = 0
        self._store_url = ""
        self._is_ended = False

    @property
    def report(self) -> IngestReport:
        """Numbers of the files and chunks that were committed so far."""
        return IngestReport() if self._ingest is None else self._ingest.report

    def add(
        self, path: str, data: bytes | bytearray | memoryview | BinaryIO, *, modified_ns: int | None = None
    ) -> None:
        """Add a file. Small files are packed together later; a large one is packed now.

        If a path is added twice, the later file replaces the earlier one, unless `on_conflict` says otherwise.

        Args:
            path: Path of the file in the catalog, such as "photos/cat.jpg".
            data: The content: bytes, or an open binary file, which is read from its position to its end.
            modified_ns: Modification time, in nanoseconds since 1970 UTC; None for the present time.

        Raises:
            InvalidInput: No file can be written under this path, the content is not binary, or the writer is not
                open.
            Conflict: The catalog has an earlier file of the batch with the same path, and `on_conflict` is FAIL.
            Refused: The file, or an earlier file of the batch, is too large for a chunk.
            SourceFailed: The content cannot be read. The writer is still usable after this error and Refused.
            StoreFailed, AccessDenied, Unavailable: The store cannot be written.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        self._opened()
        _check_path(path)
        content = GivenFile(data, time.time_ns() if modified_ns is None else modified_ns)
        self._source.add(path, content)
        is_full = len(self._source.files_to_add) >= _BATCH_FILES or self._source.size_bytes >= _BATCH_BYTES
        if is_full or content.size_bytes > WHOLE_FILE_BYTES or not isinstance(data, bytes):
            self._pack()

    def commit(self) -> None:
        """Commit all files that were added: they are durable and visible afterwards. Raises the errors of `add`."""
        ingest = self._opened()
        self._pack()
        ingest.finish()
        self._problems.raise_first()

    def _pack(self) -> None:
        try:
            if self._source.files_to_add:
                self._opened().ingest_batch(self._source, self._source.files_to_add)
        finally:
            self._source.clear()
        self._problems.raise_first()

    def _opened(self) -> Ingest:
        if self._ingest is None or self._is_ended:
            raise InvalidInput("the writer is not open", hint="write: with repository.writer() as writer: ...")
        return self._ingest

    def __enter__(self) -> Self:
        store = prepared_store(self._session, join=self._options.join_store)
        self._store_url = store.url
        recorded = {"target_size": self._limits.target_bytes, "format": self._format.name}
        catalog = self._session.catalog
        self._run = catalog.runs.begin_run(
            sources=[self._source.name],
            options=recorded | {"on_conflict": self._on_conflict},
            version=__version__,
        )
        target = ChunkTarget(catalog, store, self._format, self._run, owner_name(f"run {self._run}"))
        options = SourceOptions(on_conflict=self._on_conflict, comparison=Comparison.NOTHING)
        self._ingest = Ingest(self._session, target, self._limits, options)
        self._ingest.positions.source = self._source
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._abandon(error)
            return
        try:
            self.commit()
        except BaseException as failure:
            self._abandon(failure)
            raise
        self._end(RunState.FINISHED, None)

    def _abandon(self, error: BaseException) -> None:
        self._opened().abandon(f"the writer failed: {error}")
        state = RunState.INTERRUPTED if isinstance(error, KeyboardInterrupt) else RunState.FAILED
        with suppress(CafcatError):  # the error that ended the writer is raised
            self._end(state, str(error) or type(error).__name__)

    def _end(self, state: RunState, error: str | None) -> None:
        report = self._opened().report
        self._is_ended = True
        self._session.catalog.runs.finish_run(self._run, state, report.as_counts(), error)
        self._session.catalog.folders.fold()
        if report.chunks_committed:
            list_new_store(self._session, self._store_url)


class _Problems(Progress):
    """Passes everything to another Progress, and keeps the first file that failed."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._first: FileProblem | None = None

    def begin(self, verb: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        """Pass the begin of a stage on."""
        self._progress.begin(verb, files=files, size_bytes=size_bytes)

    def advance(self, files: int, size_bytes: int) -> None:
        """Pass the numbers of further files and bytes on."""
        self._progress.advance(files, size_bytes)

    def checkpoint(self) -> None:
        """Call the checkpoint of the other Progress. A writer is never `stopping`: its program decides."""
        self._progress.checkpoint()

    def emit(self, event: Event) -> None:
        """Pass an event on. Keep a failure of a file."""
        self._progress.emit(event)
        if isinstance(event, FileProblem) and event.kind.is_failure and self._first is None:
            self._first = event

    def raise_first(self) -> None:
        """Raise an error for the first file that failed since the last call, if one did.

        Raises:
            SourceFailed: The content could not be read.
            Refused: The file is too large for a chunk, or the format cannot store it.
        """
        first, self._first = self._first, None
        if first is None:
            return
        is_unreadable = first.kind is ProblemKind.UNREADABLE
        raise (SourceFailed if is_unreadable else Refused)(first.message, path=first.path)


def _check_path(path: str) -> None:
    check_text(path)
    reason = check_name(path)
    if reason is None and member_name(path)[0] != path:
        reason = 'it begins or ends with "/", or has a part "", "." or ".."'
    if reason is not None:
        raise InvalidInput(f"no file can be written under this path: {reason}", path=path)

"""One ingest from its beginning to its end, and the row of `ingest_runs` that tells of it."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.owners import owner_name
from cafcat.errors import InvalidInput
from cafcat.formats.base import Format
from cafcat.formats.registry import LOGS
from cafcat.model import Comparison, IngestReport, RunState
from cafcat.operations.ingest.coordinator import Ingest
from cafcat.operations.ingest.worker import Setup
from cafcat.operations.ingest.worker_pool import WorkerPool
from cafcat.progress import Progress
from cafcat.scanning.opening import Opening, printable_options
from cafcat.sources.base import Source
from cafcat.stores.base import Store
from cafcat.writing.chunk import ChunkTarget
from cafcat.writing.limits import Limits
from cafcat.writing.rooms import Rooms

if TYPE_CHECKING:
    from cafcat.logs.packing import LogIngest

__all__ = ["IngestRun", "target_of"]

_LOGS_BYTES: Final = 1_000_000_000
"""Of log files in one archive. clp-s keeps dictionaries of all of it in memory, and a search reads them first."""


def target_of(format: str, usual: int) -> int:
    """The size in bytes at which a new chunk of a format begins, if nobody says another."""
    return _LOGS_BYTES if format == LOGS else usual


class IngestRun:
    """Opens the sources, takes all of them, and records how it ended."""

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        opening: Opening,
        *,
        archive_format: Format,
        timestamp_key: str | None = None,
        dry_run: bool,
        target_size: int,
        jobs: int,
        rooms: Rooms,
        version: str,
        progress: Progress,
        should_stop: Callable[[], bool],
    ) -> None:
        """Args: timestamp_key: of archives of logs; target_size: bytes of a chunk, or of the log files in it; jobs:
        processes that pack; rooms: opens catalog and stores in another process; version: of the program, for the
        record. Raises InvalidInput for a size that no chunk can have, and for no jobs."""
        if jobs < 1:
            raise InvalidInput(f"{jobs} jobs do nothing")
        self._jobs = jobs
        self._rooms = rooms
        self._format = archive_format
        self._is_of_logs = archive_format.name == LOGS
        if timestamp_key is not None and not self._is_of_logs:
            raise InvalidInput(f"a timestamp key is for {LOGS}, not for {archive_format.name}")
        if self._is_of_logs and opening.options.comparison is not Comparison.TIME:
            hint = "leave --checksum and --force out"
            raise InvalidInput(f"records in an archive of {LOGS} cannot be compared or replaced", hint=hint)
        self._timestamp_key = timestamp_key
        self._limits = Limits(target_bytes=target_size)
        self._limits.check()
        self._catalog = catalog
        self._store = store
        self._opening = opening
        self._dry_run = dry_run
        self._version = version
        self._progress = progress
        self._should_stop = should_stop

    def take(self, sources: Sequence[str | os.PathLike[str]]) -> IngestReport:
        """Ingests what was typed. Raises what Opening.open and Ingest.take raise."""
        opened = self._opening.open(sources)
        if self._is_of_logs:
            from cafcat.logs.packing import check_log_sources

            check_log_sources(opened)
        run = 0 if self._dry_run else self._begin(opened)
        ingest = self._logs(run) if self._is_of_logs else self._files(run)
        self._progress.begin("ingest")
        try:
            if isinstance(ingest, Ingest) and not self._dry_run:
                ingest.positions = self._opening.positions(run)
            ingest.take(opened)
        except BaseException as error:
            state = RunState.INTERRUPTED if isinstance(error, KeyboardInterrupt) else RunState.FAILED
            self._end(ingest.report, state, str(error) or type(error).__name__)
            raise
        finally:
            self._progress.end()
        self._end(ingest.report, RunState.INTERRUPTED if ingest.report.interrupted else RunState.FINISHED)
        return ingest.report

    def _files(self, run: int) -> Ingest:
        return Ingest(
            self._place(run),
            self._limits,
            on_conflict=self._opening.options.on_conflict,
            comparison=self._opening.options.comparison,
            dry_run=self._dry_run,
            progress=self._progress,
            should_stop=self._should_stop,
            team=partial(self._team, run) if self._jobs > 1 and not self._dry_run else None,
        )

    def _logs(self, run: int) -> "LogIngest":
        from cafcat.logs.packing import LogIngest

        return LogIngest(
            self._place(run),
            self._limits.target_bytes,
            timestamp_key=self._timestamp_key,
            on_conflict=self._opening.options.on_conflict,
            dry_run=self._dry_run,
            progress=self._progress,
            should_stop=self._should_stop,
        )

    def _team(self, run: int) -> WorkerPool:
        place = self._place(run)
        setup = Setup(
            self._rooms,
            place.store.url,
            place.archive_format.name,
            run,
            self._limits,
            self._opening.options.on_conflict,
        )
        return WorkerPool(setup, self._jobs, self._progress, self._should_stop)

    def _begin(self, sources: Sequence[Source]) -> int:
        recorded = self._opening.options.as_recorded()
        recorded |= {"target_size": self._limits.target_bytes, "format": self._format.name}
        recorded |= {"timestamp_key": self._timestamp_key} if self._is_of_logs else {}
        return self._catalog.runs.begin_run(
            sources=[source.name for source in sources],
            options=printable_options(recorded),
            version=self._version,
        )

    def _end(self, report: IngestReport, state: RunState, error: str | None = None) -> None:
        """A run that failed because the catalog is gone cannot be recorded there: the first error counts."""
        if report.run is None:
            return
        try:
            self._catalog.runs.finish_run(report.run, state, report.as_counts(), error)
        except Exception:
            if error is None:
                raise

    def _place(self, run: int) -> ChunkTarget:
        return ChunkTarget(self._catalog, self._store, self._format, run, owner_name(f"run {run}"))

"""Runs an ingest: packs the new and changed files of sources into chunks, and records the run in the catalog."""

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cafcat import __version__
from cafcat.catalog.chunks.owners import owner_name
from cafcat.errors import CafcatError, CatalogUnavailable, InvalidInput
from cafcat.formats import registry as formats
from cafcat.formats.registry import LOGS
from cafcat.model import RunState
from cafcat.operations.audit import recorded
from cafcat.operations.chosen_stores import store_for_new_objects, store_to_write
from cafcat.operations.ingest.coordinator import Ingest
from cafcat.operations.ingest.options import IngestOptions
from cafcat.operations.joining import has_joined, join_store
from cafcat.operations.new_store import list_new_store
from cafcat.operations.opened_sources import source_opener
from cafcat.operations.recover.before import recover_before
from cafcat.operations.shared_limits import with_shared_limits
from cafcat.reports import IngestReport
from cafcat.session import Session
from cafcat.settings.sharing import SharedSettings
from cafcat.sources.base import Source
from cafcat.sources.names import printable
from cafcat.stores.base import FolderStore, Store
from cafcat.writing.chunk import ChunkTarget
from cafcat.writing.limits import Limits

if TYPE_CHECKING:
    from cafcat.logs.packing import LogIngest
    from cafcat.operations.ingest.gone import GoneFiles
    from cafcat.operations.ingest.sharded import ShardedIngest

__all__ = ["prepared_store", "run"]

_LOGS_BYTES: Final = 1_000_000_000
"""Bytes of log files in one archive by default: clp-s keeps its dictionaries in memory, and a search reads them
first."""


@recorded
def run(session: Session, options: IngestOptions) -> IngestReport:
    """Pack the new and changed files of the sources into chunks, and return the counts.

    Leftovers of dead writers in the store are recovered first, except in a dry run. After an error, chunks that
    were committed before stay, and the error's `report` has their counts.

    Raises:
        InvalidInput: Options contradict each other, or are out of range.
        Unsupported, NotInstalled: Chunks of the format cannot be written here.
        NotFound: A source, or the store, does not exist.
        Conflict: The catalog has a path with other content, and `on_conflict` is FAIL; or the store has chunks of
            another catalog, and `join_store` is false.
        Locked: Another catalog began to write into the store at the same moment, and `join_store` is false.
        Corrupt: The marker of this catalog in the store is damaged.
        SourceFailed: A source cannot be used at all.
        StoreFailed, AccessDenied: The store or a source failed.
        Unavailable: The store is not where its URL points, or a worker process died.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    options.check()
    store = prepared_store(session, options.sources, join=options.join_store, dry_run=options.dry_run)
    return _IngestRun(session, store, options).run()


def _refuse_own_store(store: Store, sources: Sequence[str | os.PathLike[str]]) -> None:
    """Raise InvalidInput if the only source is the folder of the store. A mistake must not leave a marker there."""
    if len(sources) != 1 or not isinstance(store, FolderStore):
        return
    with suppress(OSError):
        if os.path.samefile(sources[0], store.folder):
            hint = "name another folder to pack, or another store: --store"
            raise InvalidInput(f"{os.fspath(sources[0])} is the store itself", hint=hint)


def prepared_store(
    session: Session, sources: Sequence[str | os.PathLike[str]] = (), *, join: bool, dry_run: bool = False
) -> Store:
    """Return the store for new chunks, after the leftovers of dead writers in it were recovered.

    If the store does not have the marker of this catalog yet, the marker is written.

    Args:
        session: The session.
        sources: The sources, as the user named them.
        join: True to write into a store that has chunks of another catalog.
        dry_run: True to write nothing.
    """
    store = store_for_new_objects(session)
    _refuse_own_store(store, sources)
    is_joined = has_joined(session, store)
    if not is_joined:
        store = store_to_write(session)
    if not dry_run:
        recover_before(session, store.url)
    if not is_joined:
        join_store(session, store, allow_shared=join, dry_run=dry_run)
    return store


class _IngestRun:
    """State and steps of one ingest, of files or of logs, with its row in `ingest_runs`."""

    def __init__(self, session: Session, store: Store, options: IngestOptions) -> None:
        self._session = session
        self._store = store
        self._options = options
        self._format = formats.for_new_chunks(options.format)
        self._is_of_logs = self._format.name == LOGS
        size_bytes = _LOGS_BYTES if self._is_of_logs else session.settings.target_size
        self._limits = Limits(target_bytes=size_bytes if options.target_size is None else options.target_size)
        self._limits.check()

    def run(self) -> IngestReport:
        """Open the sources, ingest them, and return the counts.

        Except in a dry run, begin and end of the ingest are recorded in `ingest_runs`, also after an error.
        """
        # Shards have positions of their own. An interrupted listing of an ingest without workers is not continued.
        # Files that are gone are found only if all files are listed.
        afresh = self._executor is not None or self._options.delete
        options = replace(self._options, restart_listing=True) if afresh else self._options
        sources = source_opener(self._session, options)
        opened = sources.open(self._options.sources)
        # The shards of an executor are listings of any source.
        if self._options.restart_listing and self._options.executor is None and not sources.has_resumable_listing:
            raise InvalidInput(
                "--restart-listing is for the listing of a bucket only", hint="leave --restart-listing out"
            )
        if self._is_of_logs:
            from cafcat.formats.clp.program import program_path
            from cafcat.logs.packing import check_log_sources

            program_path()  # raises NotInstalled before the run begins
            check_log_sources(opened)
        if self._options.delete:
            from cafcat.operations.ingest.gone import check_whole_folders

            check_whole_folders(opened)
        if self._executor is not None:
            from cafcat.operations.ingest.cluster_checks import check_cluster

            check_cluster(
                self._session,
                self._executor,
                [self._store.url],
                share_password=self._options.share_password,
                options=self._worker_options,
            )
        run_id = 0 if self._options.dry_run else self._begin(opened)
        ingest = self._ingest(run_id)
        self._session.progress.begin("ingest")
        try:
            with self._limits_of(run_id), self._gone_files(ingest):
                if isinstance(ingest, Ingest) and not self._options.dry_run:
                    sources.begin_listings(run_id, ingest.positions)
                ingest.run(opened)
            if self._executor is not None and not ingest.report.interrupted:
                sources.finish_listings()
        except BaseException as error:
            state = RunState.INTERRUPTED if isinstance(error, KeyboardInterrupt) else RunState.FAILED
            report = self._with_all_commits(ingest.report, error)
            self._finish(report, state, str(error) or type(error).__name__)
            if isinstance(error, CafcatError):
                error.report = report
            raise
        finally:
            self._session.progress.end()
        self._finish(ingest.report, RunState.INTERRUPTED if ingest.report.interrupted else RunState.FINISHED)
        return ingest.report

    def _gone_files(
        self, ingest: "Ingest | LogIngest | ShardedIngest"
    ) -> "AbstractContextManager[GoneFiles | None]":
        """Make an ingest of files find those that are gone, if they are listed, counted or removed."""
        options = self._options
        if not isinstance(ingest, Ingest) or not (options.delete or options.list_changes or options.dry_run):
            return nullcontext()
        from cafcat.operations.ingest.gone import GoneFiles

        ingest.gone = GoneFiles(self._session, options, ingest.report)
        return ingest.gone

    def _limits_of(self, run_id: int) -> AbstractContextManager[None]:
        """Return a context in which this process keeps to limits and pauses. With an executor, its workers do."""
        if self._executor is not None:
            return nullcontext()
        urls = [self._store.url, *(os.fspath(source) for source in self._options.sources)]
        return with_shared_limits(self._session, urls, run_id or None)

    @property
    def _executor(self) -> Executor | None:
        """The executor that packs the sources; None in a dry run, which this process does alone."""
        return None if self._options.dry_run else self._options.executor

    @property
    def _worker_options(self) -> IngestOptions:
        return replace(self._options, executor=None)

    def _ingest(self, run_id: int) -> "Ingest | LogIngest | ShardedIngest":
        if self._executor is not None:
            return self._sharded_ingest(self._executor, run_id)
        target = ChunkTarget(self._session.catalog, self._store, self._format, run_id, owner_name(f"run {run_id}"))
        return self._log_ingest(target) if self._is_of_logs else self._file_ingest(target)

    def _sharded_ingest(self, executor: Executor, run_id: int) -> "ShardedIngest":
        from cafcat.operations.ingest.shard_worker import ShardSettings
        from cafcat.operations.ingest.sharded import ShardedIngest
        from cafcat.support.executors import is_local

        with_password = self._options.share_password or is_local(executor)
        settings = SharedSettings.of(self._session.settings, with_password=with_password)
        return ShardedIngest(
            self._session,
            executor,
            ShardSettings(settings, self._worker_options, self._store.url, self._format.name, run_id, self._limits),
        )

    def _file_ingest(self, target: ChunkTarget) -> Ingest:
        return Ingest(
            self._session,
            target,
            self._limits,
            self._options,
            dry_run=self._options.dry_run,
            list_changes=self._options.list_changes,
            jobs=self._options.jobs,
        )

    def _log_ingest(self, target: ChunkTarget) -> "LogIngest":
        from cafcat.logs.packing import LogIngest

        return LogIngest(
            target,
            self._limits.target_bytes,
            timestamp_key=self._options.timestamp_key,
            on_conflict=self._options.on_conflict,
            dry_run=self._options.dry_run,
            list_changes=self._options.list_changes,
            progress=self._session.progress,
        )

    def _begin(self, sources: Sequence[Source]) -> int:
        """Insert the row of the run into `ingest_runs`, and return its id."""
        recorded = self._options.as_recorded()
        recorded |= {"target_size": self._limits.target_bytes, "format": self._format.name}
        if self._options.delete:
            recorded |= {"delete": True, "max_delete": self._options.max_delete}
        if self._is_of_logs:
            key = self._options.timestamp_key
            recorded["timestamp_key"] = None if key is None else printable(key)
        return self._session.catalog.runs.begin_run(
            sources=[source.name for source in sources],
            options=recorded,
            version=__version__,
        )

    def _with_all_commits(self, report: IngestReport, error: BaseException) -> IngestReport:
        """Return the report of a failed ingest of files, with all chunks that the catalog has of the run.

        A worker process that was killed can have committed a chunk before it could report the chunk. Calls of an
        executor are counted by their shards. If the catalog does not answer, the counts stay as they are.

        Args:
            report: The report of this process and its workers.
            error: Why the ingest failed.
        """
        if report.run is None or self._is_of_logs or self._executor is not None:
            return report
        if isinstance(error, CatalogUnavailable):
            return report
        with suppress(CafcatError):
            found = self._session.catalog.runs.run(report.run)
            if found.chunks_committed > report.chunks_committed:
                names = ("chunks_committed", "files_added", "files_replaced", "bytes_added")
                return replace(report, **{name: getattr(found, name) for name in names})
        return report

    def _finish(self, report: IngestReport, state: RunState, error: str | None = None) -> None:
        """Record the end of the run in `ingest_runs`, unless it is a dry run.

        Args:
            report: The counts of the run.
            state: How the run ended.
            error: Message of the error that ended the ingest; None without one. If there is one, errors of this
                step are ignored, so that they do not hide that error.
        """
        if report.run is None:
            return
        try:
            self._session.catalog.runs.finish_run(report.run, state, report.as_counts(), error)
            self._session.catalog.folders.fold()
            if report.chunks_committed:
                list_new_store(self._session, self._store.url)
        except Exception:
            if error is None:
                raise

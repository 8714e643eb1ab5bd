"""An ingest by the workers of an executor: cuts the sources into shards, submits calls, and follows the catalog.

The state of the ingest is in the table `shards`. This process may die: the workers go on, and the same command
continues with the shards that are not finished.
"""

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from typing import Final

from cafcat.catalog.history.shards import CutSource, NewShard, Situation
from cafcat.errors import CafcatError, Conflict, Unavailable
from cafcat.events import ChunkCommitted
from cafcat.model import RunTotals
from cafcat.operations.ingest.shard_worker import ShardSettings, ingest_shard
from cafcat.reports import IngestReport
from cafcat.session import Session
from cafcat.sources.base import Source
from cafcat.sources.names import printable
from cafcat.sources.parts import WHOLE, DivisibleSource, EditedSource
from cafcat.sources.registry import scheme_of
from cafcat.support.executors import FINAL_ERRORS, shown_error, worker_count
from cafcat.support.quantities import plural

__all__ = ["ShardedIngest"]

_SHARDS_PER_WORKER: Final = 8
_LEAST_SHARDS: Final = 32
"""A source is cut into eight shards for each worker, so that the work is balanced, and into at least 32."""
_CALLS_PER_WORKER: Final = 2
"""Largest number of unfinished calls for each worker. The second one replaces a call that ends early."""
_LOOK_SECONDS: Final = 1.0
"""Time between two looks at the catalog, in seconds."""
_LATE_CALL_SECONDS: Final = 30.0
"""How long an ingest that ends waits for its calls, in seconds. The engine may have lost some of them."""


class ShardedIngest:
    """State and steps of an ingest by the workers of an executor.

    Attributes:
        report: Counts of all workers.
    """

    def __init__(self, session: Session, executor: Executor, settings: ShardSettings) -> None:
        """Prepare the ingest. Nothing is read or submitted yet.

        Args:
            session: The session.
            executor: Runs the calls of the workers.
            settings: What the workers have to know.
        """
        self._session = session
        self._shards = session.catalog.shards
        self._executor = executor
        self._settings = settings
        self._run_id = settings.run
        self._most_calls = _CALLS_PER_WORKER * worker_count(executor)
        self._futures: set[Future[IngestReport]] = set()
        self._error: BaseException | None = None
        self._handled = (0, 0)
        self._chunks: set[str] = set()
        self._last_event = 0
        self._seen_events: set[int] = set()
        self._requested: str | None = None
        self._earlier_runs: set[int] = set()
        self._begun_after = 0
        self.report = IngestReport(run=settings.run)

    def run(self, sources: Sequence[Source]) -> None:
        """Cut the sources into shards, unless an earlier run has done so, and have all shards packed.

        Raises:
            Unavailable: Shards failed too often, or the executor takes no calls.
            Conflict: The catalog has a path with other content, and `on_conflict` is FAIL.
            AccessDenied, CatalogOutdated, InvalidInput, Locked, NotInstalled, Unsupported: A worker failed, and
                every other one would fail in the same way.
            CatalogUnavailable, StoreFailed, SourceFailed: The catalog or a source failed in this process.
        """
        self._begun_after = self._shards.last_event()
        try:
            for number, source in enumerate(sources):
                self._plan(number, source)
            self._follow()
        except BaseException as error:
            self._end_workers("abort" if isinstance(error, KeyboardInterrupt) else "stop")
            raise
        finally:
            with suppress(CafcatError):
                self._count()

    def _plan(self, number: int, source: Source) -> None:
        options = self._settings.options
        scope = [*options.scope, options.inventory, options.follow_symlinks, options.unpack_tars]
        if isinstance(source, EditedSource) and source.edition:
            scope.append(source.edition)
        cut = CutSource(_identity(options.sources, number, source), json.dumps(scope), number)
        if options.restart_listing:
            self._shards.cancel(cut)
        elif left := self._shards.adopt(cut, self._run_id):
            self._earlier_runs.update(left)
            self._session.warn(f"continuing an earlier ingest of {source.name}: {plural(len(left), 'shard')} left")
            return
        wanted = max(_LEAST_SHARDS, _SHARDS_PER_WORKER * worker_count(self._executor))
        parts = source.cut(WHOLE, wanted) if isinstance(source, DivisibleSource) else [WHOLE]
        self._shards.add(cut, self._run_id, [NewShard(*part) for part in parts])

    def _follow(self) -> None:
        """Submit calls, and follow their progress in the catalog, until no shard is left or the ingest ends."""
        while True:
            self._shards.expire_dead(self._run_id)
            situation = self._shards.situation(self._run_id)
            if self._is_over(situation):
                break
            if situation.request is None and self._error is None:
                self._submit(situation.free)
            self._wait()
            self._show()
            self._pass_on_requests()
        self._wait_for_late_calls()
        self._show()
        self._show_rest()
        if self._error is not None:
            raise self._error
        if situation.given_up and situation.request is None:
            errors = "; ".join(self._shards.errors(self._run_id))
            raise Unavailable(f"{plural(situation.given_up, 'shard')} failed too often: {errors}")

    def _is_over(self, situation: Situation) -> bool:
        """Return True if no shard is left, or if the ingest ends and no worker has a shard."""
        if self._error is not None or situation.request in ("stop", "abort"):
            return situation.running == 0 or self._requested == "abort"
        return situation.free == 0 and situation.running == 0

    def _wait_for_late_calls(self) -> None:
        """Wait some seconds for calls that are ending, or that wait for a worker and will find no shard."""
        done, self._futures = wait(self._futures, _LATE_CALL_SECONDS)
        for future in done:
            self._note(future)

    def _submit(self, free: int) -> None:
        wanted = min(free, self._most_calls) - len(self._futures)
        if wanted <= 0:
            return
        try:
            for shard in self._shards.free(self._run_id, wanted):
                self._futures.add(self._executor.submit(ingest_shard, self._settings, shard))
        except CafcatError:
            raise
        except Exception as error:  # engines raise errors of their own
            hint = "run the same command again when the engine works: it continues where it stopped"
            raise Unavailable(f"the executor takes no calls: {shown_error(error)}", hint=hint) from error

    def _wait(self) -> None:
        """Wait up to a second for calls to end. An error that every worker would have ends the ingest."""
        if not self._futures:
            time.sleep(_LOOK_SECONDS)
            return
        done, self._futures = wait(self._futures, _LOOK_SECONDS, FIRST_COMPLETED)
        for future in done:
            self._note(future)

    def _note(self, future: "Future[IngestReport]") -> None:
        try:
            error = future.exception()
        except BaseException as cancelled:  # noqa: BLE001 - engines cancel the calls of lost workers
            error = cancelled
        if error is None:
            return
        is_conflict = isinstance(error, Conflict) and error.path is not None
        if isinstance(error, FINAL_ERRORS) or is_conflict:
            self._error = self._error or error
            self._ask("stop")
        else:
            self._session.warn(f"a worker failed, and another one continues: {shown_error(error)}")

    def _pass_on_requests(self) -> None:
        """Pass the user's wish to stop on to the workers. The second wish makes them abandon their open chunks."""
        if self._session.stopping and self._requested is None:
            self._ask("stop")
        self._session.checkpoint()

    def _ask(self, request: str) -> None:
        self._requested = request
        self._shards.request(self._run_id, request)

    def _end_workers(self, request: str) -> None:
        """Cancel the calls that have not begun, and ask the others to stop or abort."""
        for future in self._futures:
            future.cancel()
        with suppress(CafcatError):
            self._ask(request)

    def _show(self) -> None:
        """Report the files and chunks that the workers have finished since the last look."""
        files, size_bytes = self._shards.handled(self._run_id)
        self._session.progress.advance(files - self._handled[0], size_bytes - self._handled[1])
        self._handled = files, size_bytes
        for uuid, file_count, chunk_bytes in self._shards.committed_chunks(self._run_id):
            if uuid not in self._chunks:
                self._chunks.add(uuid)
                self._session.emit(ChunkCommitted(uuid, file_count, chunk_bytes))
        self._show_failures()

    def _show_failures(self) -> None:
        """Report failures of files, up to a thousand, that were recorded since the last look."""
        failures = self._session.catalog.runs.failed_files(self._run_id, self._last_event)
        for event_id, problem in failures:
            self._last_event = event_id
            if event_id not in self._seen_events:
                self._seen_events.add(event_id)
                self._session.emit(problem)

    def _show_rest(self) -> None:
        """Report all failures that were not reported. Workers may have recorded some of them late, out of order."""
        self._last_event, before = 0, -1
        while self._last_event != before:
            before = self._last_event
            self._show_failures()

    def _count(self) -> None:
        """Set the counts of the report: those of the catalog."""
        totals: RunTotals = self._shards.totals(self._run_id)
        report = self.report
        for name in ("seen", "unchanged", "compared", "skipped", "failed"):
            setattr(report, f"files_{name}", totals.counts.get(name, 0))
        report.files_added, report.files_replaced = totals.added, totals.replaced
        report.files_skipped += totals.skipped
        report.bytes_added, report.chunks_committed = totals.bytes, totals.chunks
        if self._earlier_runs:
            report.files_of_earlier_run = self._shards.packed_since(self._begun_after, self._earlier_runs)
        report.interrupted = self._requested == "stop" and self._error is None


def _identity(typed: Sequence[str | os.PathLike[str]], number: int, source: Source) -> str:
    """Return a name for a source that is the same in each ingest of it: its URL, or its absolute path."""
    if number >= len(typed):
        return source.name
    name = os.fspath(typed[number])
    return printable(name if scheme_of(name) is not None else os.path.abspath(name))

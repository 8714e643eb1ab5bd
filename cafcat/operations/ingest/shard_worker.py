"""The call that a worker of an ingest executes, on any host: it packs shards until none is left.

A worker takes one shard after the other from the catalog, under a lease, and packs their files into chunks as an
ordinary ingest does. After each commit it records in the catalog how far each shard is done. So whatever is lost,
another worker continues there.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from cafcat.catalog.chunks.owners import owner_name
from cafcat.catalog.history.shards import NewShard, Shard
from cafcat.errors import CafcatError
from cafcat.events import Event, Warned
from cafcat.formats import registry as formats
from cafcat.model import FileProblem
from cafcat.operations.ingest.coordinator import Ingest
from cafcat.operations.ingest.heartbeat import LEASE_SECONDS, Heartbeat
from cafcat.operations.ingest.options import IngestOptions
from cafcat.operations.opened_sources import source_opener
from cafcat.operations.recover.before import recover_before
from cafcat.operations.shared_limits import with_shared_limits
from cafcat.progress import Progress
from cafcat.reports import IngestReport
from cafcat.scanning.batches import SourceBroke
from cafcat.session import Session
from cafcat.settings.sharing import SharedSettings
from cafcat.sources.base import Source
from cafcat.sources.parts import DivisibleSource, Part
from cafcat.writing.chunk import ChunkTarget
from cafcat.writing.limits import Limits

__all__ = ["ShardSettings", "ingest_shard"]

_MOST_FILES: Final = 50_000
"""Number of files of a shard after which its rest is cut into further shards, for other workers, too."""
_DIVIDED_INTO: Final = 8
"""Number of shards into which the rest of a long shard is cut."""


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """Settings and options with which workers pack the shards of an ingest. They can be pickled.

    Attributes:
        settings: Settings of the repository.
        options: Options of the ingest, without the executor.
        store: URL of the store for new chunks.
        format: Name of the format of new chunks.
        run: `ingest_runs.id` of the ingest.
        limits: When a chunk is full.
    """

    settings: SharedSettings
    options: IngestOptions
    store: str
    format: str
    run: int
    limits: Limits


def ingest_shard(settings: ShardSettings, shard: int) -> IngestReport:
    """Pack a shard of an ingest, and then further shards that nobody has taken, until none is left.

    This is the call that executors run. It is safe to run it again, and to run it in several threads of a process.
    If another worker has packed the shard already, and no other one is free, the call does nothing.

    Args:
        settings: What the ingest packs, and where.
        shard: shards.id of the shard to take first.

    Returns:
        Counts of the files and chunks of this call.

    Raises:
        CafcatError: The worker failed. It has given its shards back, if the catalog answered.
    """
    progress = _WorkerProgress()
    urls = [settings.store, *(os.fspath(source) for source in settings.options.sources)]
    with (
        closing(Session.open(settings.settings.load(), progress, progress)) as session,
        with_shared_limits(session, urls, settings.run),
    ):
        return _Worker(session, progress, settings).run(shard)


class _WorkerProgress(Progress):
    """Progress of a worker: counts files and bytes for the heartbeat, which can stop the worker.

    Attributes:
        heartbeat: Renews the leases of the worker's shards.
    """

    heartbeat: Heartbeat | None = None

    def advance(self, files: int, size_bytes: int) -> None:
        """Count files and bytes of the current shard."""
        if self.heartbeat is not None:
            self.heartbeat.advance(files, size_bytes)

    def emit(self, event: Event) -> None:
        """Log a warning, and a problem with a file, to the logger "cafcat", so that the engine shows it."""
        if isinstance(event, Warned):
            logging.getLogger("cafcat").warning(event.message)
        elif isinstance(event, FileProblem) and event.kind.is_failure:
            logging.getLogger("cafcat").warning("%s: %s", event.path, event.message)

    @property
    def stopping(self) -> bool:
        """True if the workers of the run are asked to stop or abort."""
        return self.heartbeat is not None and self.heartbeat.is_asked_to_end

    def checkpoint(self) -> None:
        """Raise an error if this worker has lost a shard, or if the workers are asked to abort."""
        if self.heartbeat is not None:
            self.heartbeat.check()


class _Worker:
    """State and steps of one call of `ingest_shard`."""

    def __init__(self, session: Session, progress: _WorkerProgress, settings: ShardSettings) -> None:
        self._session = session
        self._settings = settings
        self._shards = session.catalog.shards
        self._owner = owner_name(f"run {settings.run} worker {uuid4().hex[:8]}")
        self._ids: dict[Source, int] = {}
        self._counts: dict[int, _Counts] = {}
        archive_format = formats.by_name(settings.format)
        store = session.stores[settings.store]
        target = ChunkTarget(session.catalog, store, archive_format, settings.run, self._owner)
        self._ingest = Ingest(session, target, settings.limits, settings.options, most_files=_MOST_FILES)
        self._ingest.positions.begin(self, self._ids)
        self._opener = source_opener(session, settings.options)
        self._opener.progress = Progress()  # the coordinator has opened the source, too, and shown the warnings
        # It starts a thread, which `run` ends.
        self._heartbeat = progress.heartbeat = Heartbeat(session.settings, settings.run, self._owner)

    def run(self, first: int) -> IngestReport:
        error: BaseException | None = None
        try:
            self._ingest.run(self._sources(first))
        except BaseException as raised:
            error = raised
            raise
        finally:
            held = self._heartbeat.end()
            with suppress(CafcatError):  # the leases end by themselves
                message = None if error is None else f"{error}"
                self._shards.release(held, self._owner, message, counts=error is not None)
        return self._ingest.report

    def _sources(self, first: int) -> Iterator[Source]:
        """Yield the part of a source of each shard that this worker takes, until no shard is free."""
        while not self._session.should_end():
            shard = self._shards.take(self._settings.run, first, self._owner, LEASE_SECONDS)
            if shard is None:
                return
            self._heartbeat.hold(shard.id, shard.report)
            if shard.was_lost:
                # The chunk of the lost worker may be complete. If so, its files need not be packed again.
                recover_before(self._session, self._settings.store)
            yield from self._source(shard)

    def _source(self, shard: Shard) -> Iterator[Source]:
        """Yield the rest of a shard as a source. Afterwards, cut the files that were not listed into shards."""
        self._counts[shard.id] = _Counts(shard.report, self._ingest.report)
        part = Part(shard.position or shard.after, shard.through)
        try:
            source = self._opener.open_part(self._settings.options.sources, shard.source_number, part)
        except CafcatError as error:
            raise SourceBroke(error) from error
        self._ids[source] = shard.id
        yield source
        self._counts[shard.id].stop()
        self._cut_off(source, shard)

    def _cut_off(self, source: Source, shard: Shard) -> None:
        """Cut the files of a long shard that were not listed into further shards, if there are any."""
        position = self._ingest.last_position
        if position is None or not isinstance(source, DivisibleSource):
            return
        rest = source.cut(Part(position, shard.through), _DIVIDED_INTO)
        parts = [NewShard(shard.after, rest[0].after), *(NewShard(*smaller) for smaller in rest)]
        if self._shards.divide(shard, self._owner, parts):
            self._ingest.positions.ended(source)

    def advance(self, shard_id: int, position: str) -> None:
        """Record that all files of a shard up to a position were dealt with. `Positions` calls this."""
        self._shards.advance(shard_id, self._owner, position, self._report(shard_id))

    def finish(self, shard_id: int) -> None:
        """Record that a shard is done. `Positions` calls this."""
        self._shards.finish(shard_id, self._owner, self._report(shard_id))
        self._heartbeat.let_go(shard_id)

    def _report(self, shard_id: int) -> dict[str, int]:
        return self._heartbeat.committed(shard_id) | self._counts[shard_id].values()


class _Counts:
    """Counts of the files of one shard. They are part of the report of the worker, which goes over many shards."""

    _NAMES: Final = ("seen", "unchanged", "compared", "skipped", "failed")

    def __init__(self, before: Mapping[str, int], report: IngestReport) -> None:
        """Begin to count.

        Args:
            before: Counts of the files of the shard that earlier workers handled.
            report: The report of this worker.
        """
        self._report = report
        self._begin = {name: before.get(name, 0) - count for name, count in self._now().items()}
        self._end: dict[str, int] | None = None

    def stop(self) -> None:
        """Count no further files: all files of the shard were handled."""
        self._end = self._now()

    def values(self) -> dict[str, int]:
        """Return the counts by name."""
        end = self._now() if self._end is None else self._end
        return {name: begin + end[name] for name, begin in self._begin.items()}

    def _now(self) -> dict[str, int]:
        return {name: getattr(self._report, f"files_{name}") for name in self._NAMES}

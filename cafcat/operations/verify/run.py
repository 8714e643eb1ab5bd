"""Verifies what was packed, closely or less so, and keeps what it finds in the catalog.

Each object is checked by itself and its result committed at once. A run that was interrupted goes on when the same
is asked for again: what it has checked is in the history, what it is to check depends on when it began only.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.verification import (
    CheckResult,
    CheckTarget,
    TargetKey,
    TargetTotals,
    VerifyRun,
    VerifyScope,
)
from cafcat.errors import CafcatError, InvalidInput, NotFound, Unavailable
from cafcat.model import ChunkState, Finding, FindingKind, Verdict, VerifyLevel
from cafcat.operations.verify.findings import Findings
from cafcat.operations.verify.source_check import SourceCheck, folder_of
from cafcat.operations.verify.worker import Checked, check_here, check_in_workers
from cafcat.progress import Progress
from cafcat.scanning.opening import Opening, SourceOptions, printable_options
from cafcat.stores.base import Store
from cafcat.stores.presence import elsewhere, why_not_there
from cafcat.support.paths import from_root
from cafcat.support.workers import processors
from cafcat.writing.rooms import Rooms

__all__ = ["CheckedObject", "Verify", "VerifyOptions", "VerifyReport"]

_WORTH_WORKERS_BYTES: Final = 64 << 20
_WORTH_WORKERS_FILES: Final = 20_000
"""With less to do it is done before other processes have begun: that takes a third of a second."""
_MOST_JOBS: Final = 64


@dataclass(frozen=True, slots=True)
class CheckedObject:
    """What was checked, with what verdict, and what was found. chunk: uuid, None for the catalog, a source, or a
    whole store that is not there. store: its URL; is_copy: whether it is a copy; object: where other programs find
    it, or the name of a source. unchecked_blocks: blocks of an adopted CAR with a hash function that is not
    checked."""

    chunk: str | None
    store: str | None
    is_copy: bool
    object: str | None
    verdict: Verdict
    files: int
    bytes_read: int
    findings: tuple[Finding, ...]
    unchecked_blocks: int = 0


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a run found, with its earlier parts, if it was interrupted.

    run: verify_runs.id. resumed: it went on with an earlier one. ok, damaged, missing, unreadable: objects by
    verdict (sources at level source, one for the catalog; a store that is not there counts as one unreadable
    object); damaged and missing are those of which a live file needs what is wrong. unneeded: damaged or missing
    objects of which no live file does. gone: objects that were deleted while they were checked. files_checked,
    bytes_read, findings: totals. unchecked_blocks: blocks of adopted CARs with a hash function that is not
    checked, without earlier parts.
    """

    run: int
    level: VerifyLevel
    resumed: bool
    ok: int
    damaged: int
    missing: int
    unreadable: int
    unneeded: int
    gone: int
    files_checked: int
    bytes_read: int
    findings: int
    interrupted: bool
    unchecked_blocks: int = 0


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What was asked for, as in Custody.verify. chunks: uuids or their beginnings; store: a URL as in
    `chunks.store`."""

    level: VerifyLevel
    sources: Sequence[str] = ()
    chunks: Sequence[str] = ()
    prefix: str = ""
    store: str | None = None
    older_than_seconds: int | None = None
    sample: float | None = None
    follow_symlinks: bool = False
    unpack_tars: bool = True
    restart: bool = False
    jobs: int | None = None

    def check(self) -> None:
        """Raises InvalidInput for what makes no sense."""
        single = self.chunks or self.store or self.older_than_seconds is not None or self.sample is not None
        if bool(self.sources) is not (self.level is VerifyLevel.SOURCE):
            hint = "cafcat verify --level source SRC..."
            raise InvalidInput("sources are for level source, and only for that", hint=hint)
        if self.level not in (VerifyLevel.INDEX, VerifyLevel.DATA) and single:
            raise InvalidInput(f"level {self.level} is not for single chunks", hint="use level index or data")
        if self.level is VerifyLevel.CATALOG and self.prefix:
            raise InvalidInput("level catalog looks at all of the catalog", hint="leave the prefix out")
        if self.sample is not None and not 0 < self.sample <= 1:
            raise InvalidInput(f"a sample is more than nothing and at most all, not {self.sample}")
        if self.jobs is not None and self.jobs < 1:
            raise InvalidInput(f"{self.jobs} jobs do nothing")

    @property
    def naming(self) -> dict[str, Any]:
        """What the names of a source's files depend on."""
        names = ("prefix", "follow_symlinks", "unpack_tars")
        return {name: getattr(self, name) for name in names}


class Verify:
    """One verify; others may be at work beside it, and writers."""

    def __init__(
        self,
        catalog: Catalog,
        store_of: Callable[[str], Store],
        *,
        rooms: Rooms,
        opening: Callable[[SourceOptions], Opening],
        progress: Progress,
        on_checked: Callable[[CheckedObject], object],
        should_stop: Callable[[], bool],
    ) -> None:
        """`store_of` gives the store of a URL in `chunks.store`; `rooms` opens catalog and stores in another
        process; `opening` opens sources; `on_checked` is told of each object when its result is in the catalog.
        `should_stop` is asked between objects; it may raise in the middle of one, which is then checked anew by the
        next verify."""
        self._catalog = catalog
        self._store_of = store_of
        self._rooms = rooms
        self._opening = opening
        self._progress = progress
        self._on_checked = on_checked
        self._should_stop = should_stop
        self._counts: Counter[str] = Counter()
        self._absent: set[str] = set()
        self._interrupted = False

    def run(self, options: VerifyOptions) -> VerifyReport:
        """All that was asked for. Raises InvalidInput, NotFound for a chunk, folder or source that is not there,
        CatalogUnavailable, CatalogOutdated, and what `should_stop` raises."""
        options.check()
        if options.level is VerifyLevel.CATALOG:
            return self._check_catalog(options)
        if options.level is VerifyLevel.SOURCE:
            return self._check_sources(options)
        return self._check_objects(options)

    def _check_catalog(self, options: VerifyOptions) -> VerifyReport:
        run = self._catalog.verification.begin(options.level, {}, restart=options.restart)
        self._progress.begin("verify")
        started_at = datetime.now(UTC)
        findings = Findings()
        for message in self._catalog.reports.findings():
            findings.add(FindingKind.CATALOG, message)
        verdict = Verdict.DAMAGED if findings else Verdict.OK
        result = CheckResult(verdict, findings.listed(), 0, 0, started_at)
        self._catalog.verification.record(run.id, options.level, None, result)
        self._tell(result, None, None)
        return self._finished(run, options.level)

    def _check_objects(self, options: VerifyOptions) -> VerifyReport:
        verification, level = self._catalog.verification, options.level
        wanted = self._wanted(options)
        run = verification.begin(level, wanted.as_scope(), restart=options.restart)
        totals = verification.totals(run.id, wanted)
        size_bytes = totals.size_bytes if level is VerifyLevel.DATA else None
        self._progress.begin("verify", files=totals.files, size_bytes=size_bytes)
        targets = self._targets(run, wanted)
        count = _worth(options.jobs, totals, level)
        if count == 1:
            self._take(run, level, check_here(self._catalog, self._store_of, targets, level, self._advance))
        else:
            with closing(check_in_workers(self._rooms, count, targets, level, self._advance)) as checks:
                self._take(run, level, checks)
        return self._finished(run, level)

    def _wanted(self, options: VerifyOptions) -> VerifyScope:
        found = [self._catalog.chunks.chunk(chunk) for chunk in options.chunks]
        for chunk in found:
            if chunk.state not in (ChunkState.COMMITTED, ChunkState.RETIRED):
                raise InvalidInput(f"the chunk is {chunk.state}: there is nothing to verify", chunk=str(chunk.uuid))
        prefix = from_root(options.prefix).rstrip("/")
        if prefix and not self._catalog.verification.has_prefix(prefix):
            raise NotFound("the catalog has no such file or folder", path=prefix)
        return VerifyScope(
            options.level,
            chunks=[chunk.uuid for chunk in found],
            prefix=prefix or None,
            store=options.store,
            older_than_seconds=options.older_than_seconds,
            sample=options.sample,
        )

    def _check_sources(self, options: VerifyOptions) -> VerifyReport:
        """One after the other; a run that goes on begins with the one that it was interrupted in."""
        # A listing in which an ingest was interrupted is not gone on with: all of it is looked at.
        opened = self._opening(SourceOptions(**options.naming, restart_listing=True)).open(options.sources)
        asked = {"sources": list(options.sources), "folder": os.getcwd()}
        verification = self._catalog.verification
        run = verification.begin(options.level, printable_options(asked | options.naming), restart=options.restart)
        self._progress.begin("verify")
        done = verification.checked(run.id)
        for typed, source in list(zip(options.sources, opened, strict=True))[done:]:
            if self._stopped():
                break
            check = SourceCheck(self._catalog, self._progress, self._should_stop)
            result = check.check(source, folder_of(typed, source, options.prefix))
            if result is None:
                self._interrupted = True
                break
            verification.record(run.id, options.level, None, result)
            self._tell(result, None, source.name)
        return self._finished(run, options.level)

    def _targets(self, run: VerifyRun, wanted: VerifyScope) -> Iterator[CheckTarget]:
        after = TargetKey(0, 0)
        while page := self._catalog.verification.targets(run.id, wanted, after):
            for target in page:
                if self._stopped():
                    return
                if target.store not in self._absent:
                    yield target
            after = page[-1].key

    def _take(self, run: VerifyRun, level: VerifyLevel, checks: Iterator[Checked]) -> None:
        for target, result in checks:
            if result is None:
                self._counts["gone"] += 1
                continue
            if self._is_of_absent_store(target, result):
                continue
            if result.is_known:
                self._catalog.verification.record(run.id, level, target, result)
            else:
                self._counts["not known"] += 1
            self._tell(result, target, self._located(target))

    def _is_of_absent_store(self, target: CheckTarget, result: CheckResult) -> bool:
        """Whether the object could not be checked because its whole store is not there: that is one finding for
        the store, says nothing of the object, and has no place in its history."""
        if result.verdict not in (Verdict.MISSING, Verdict.UNREADABLE) or not result.is_known:
            return False
        if target.store in self._absent:
            return True
        error = self._absence(target)
        if error is None:
            return False
        self._absent.add(target.store)
        self._counts["not known"] += 1
        finding = Finding(FindingKind.UNREADABLE, f"no object of it was checked: {error}")
        store = CheckedObject(None, target.store, False, target.store, Verdict.UNREADABLE, 0, 0, (finding,))
        self._on_checked(store)
        return True

    def _absence(self, target: CheckTarget) -> CafcatError | None:
        try:
            why = why_not_there(self._store_of(target.store), target.object_key)
        except Unavailable as error:
            return error
        except CafcatError:
            return None  # it answers: who may read need not be allowed to list
        return None if why is None else elsewhere(target.store, why)

    def _located(self, target: CheckTarget) -> str | None:
        """None for a store that cannot even be opened."""
        try:
            return self._store_of(target.store).locate(target.object_key)
        except CafcatError:
            return None

    def _advance(self, files: int, size_bytes: int) -> None:
        """May raise, as `should_stop` does; that it says True counts when the object is done."""
        self._should_stop()
        if files or size_bytes:
            self._progress.advance(files, size_bytes)

    def _stopped(self) -> bool:
        self._interrupted = self._should_stop() or self._interrupted
        return self._interrupted

    def _tell(self, result: CheckResult, target: CheckTarget | None, name: str | None) -> None:
        self._on_checked(
            CheckedObject(
                chunk=str(target.uuid) if target else None,
                store=target.store if target else None,
                is_copy=target is not None and target.copy_id is not None,
                object=name,
                verdict=result.verdict,
                files=result.files_checked,
                bytes_read=result.bytes_read,
                findings=tuple(result.findings),
                unchecked_blocks=result.unchecked_blocks,
            )
        )
        self._counts["unchecked blocks"] += result.unchecked_blocks

    def _finished(self, run: VerifyRun, level: VerifyLevel) -> VerifyReport:
        if not self._interrupted:
            self._catalog.verification.finish(run.id)
        tally = self._catalog.verification.tally(run.id)
        return VerifyReport(
            run=run.id,
            level=level,
            resumed=run.resumed,
            gone=self._counts["gone"],
            interrupted=self._interrupted,
            unchecked_blocks=self._counts["unchecked blocks"],
            **tally._replace(unreadable=tally.unreadable + self._counts["not known"])._asdict(),
        )


def _worth(jobs: int | None, totals: TargetTotals, level: VerifyLevel) -> int:
    """In how many processes so much is checked; 1: in this one."""
    if jobs is None:
        size_bytes = totals.size_bytes if level is VerifyLevel.DATA else 0
        if totals.files < _WORTH_WORKERS_FILES and size_bytes < _WORTH_WORKERS_BYTES:
            return 1
        jobs = processors()
    return max(1, min(jobs, totals.objects, _MOST_JOBS))

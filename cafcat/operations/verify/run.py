"""Runs `cafcat verify`: checks the catalog, chunks and copies, or sources, and stores the results in the catalog.

Each object is checked by itself, and the result is committed at once. An interrupted verify continues when it is
called again with the same options. Undamaged objects are not checked again. Damaged ones are, because they may have
been repaired since. Objects that were committed after the first part began are left out.
"""

import os
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from typing import Any, Final

from cafcat.catalog.chunks.rows import ChunkRows
from cafcat.catalog.chunks.verification import (
    CheckResult,
    CheckTarget,
    TargetKey,
    TargetTotals,
    Verification,
    VerifyRun,
    VerifyScope,
)
from cafcat.errors import CafcatError, InvalidInput, NotFound
from cafcat.events import ObjectChecked
from cafcat.model import NO_SUCH_PREFIX, ChunkState, Finding, FindingKind, Verdict, VerifyLevel
from cafcat.operations.audit import recorded
from cafcat.operations.chosen_stores import url_of_store_with_chunks
from cafcat.operations.verify.chunk_check import check_target
from cafcat.operations.verify.findings import Findings
from cafcat.operations.verify.options import VerifyOptions
from cafcat.operations.verify.reach import why_out_of_reach
from cafcat.operations.verify.report import VerifyReport
from cafcat.session import Session
from cafcat.sources.names import printable
from cafcat.support.paths import from_root
from cafcat.support.processors import processors

__all__ = ["run"]

_WORTH_WORKERS_BYTES: Final = 1 << 30
_WORTH_WORKERS_FILES: Final = 250_000
"""With fewer files and bytes to check, this process is done before others have started, which takes 0.3 seconds."""
_MOST_JOBS: Final = 64
_PAGE_OBJECTS: Final = 1000
"""Number of objects that one query selects."""


@recorded
def run(session: Session, options: VerifyOptions) -> VerifyReport:
    """Check the objects that the options choose, store the results in the catalog, and return the totals.

    Raises:
        InvalidInput: Options contradict each other, or a chunk has no object.
        NotFound: The catalog has no such chunk, folder or store, or there is no such source.
        AccessDenied, SourceFailed: A source cannot be used at all.
        Unavailable: A worker process died.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    options.check()
    verify = _Verify(session, options)
    try:
        if verify.level is VerifyLevel.CATALOG:
            return verify.check_catalog()
        if verify.level is VerifyLevel.SOURCE:
            return verify.check_sources()
        return verify.check_objects()
    finally:
        session.progress.end()


class _Verify:
    """State and steps of one `cafcat verify`. Other verifies and writers may work at the same time."""

    def __init__(self, session: Session, options: VerifyOptions) -> None:
        self._session = session
        self._options = options
        self.level = VerifyLevel(options.level)
        self._catalog = session.catalog
        self._counts: Counter[str] = Counter()
        self._stores_out_of_reach: set[str] = set()
        self._interrupted = False

    def check_catalog(self) -> VerifyReport:
        """Check with SQL alone that no rows of the catalog contradict each other."""
        run = self._catalog.verification.begin(self.level, {}, restart=self._options.restart)
        self._session.progress.begin("verify")
        started_at = datetime.now(UTC)
        findings = Findings()
        for message in self._catalog.reports.findings():
            findings.add(FindingKind.CATALOG, message)
        verdict = Verdict.DAMAGED if findings else Verdict.OK
        self._record(run, None, CheckResult(verdict, findings.listed(), 0, 0, started_at), None)
        return self._finish(run)

    def check_objects(self) -> VerifyReport:
        """Check chunks and copies at level index or data, in this process or in worker processes."""
        scope = self._scope()
        verification = self._catalog.verification
        run = verification.begin(self.level, scope.as_scope(), restart=self._options.restart)
        totals = verification.totals(run.id, scope)
        size_bytes = totals.size_bytes if self.level is VerifyLevel.DATA else None
        self._session.progress.begin("verify", files=totals.files, size_bytes=size_bytes)
        with closing(self._checks(run, scope, totals)) as checks:
            for target, result in checks:
                self._record_object(run, target, result)
        return self._finish(run)

    def _checks(
        self, run: VerifyRun, scope: VerifyScope, totals: TargetTotals
    ) -> Generator[tuple[CheckTarget, CheckResult | None], None, None]:
        """Check the objects here, in worker processes or on a cluster, and yield each with its result."""
        targets = self._targets(run, scope)
        job_count = _job_count(self._options.jobs, totals, self.level)
        if self._options.jobs is None and job_count > 1 and not self._catalog.takes_connections(job_count):
            job_count = 1
        if self._options.executor is not None:
            from cafcat.operations.verify.cluster import check_on_cluster

            stores = self._catalog.verification.stores(run.id, scope)
            yield from check_on_cluster(self._session, self._options, stores, targets, self.level)
        elif job_count == 1:
            yield from self._check_here(targets, totals.objects)
        else:
            from cafcat.operations.verify.worker import check_in_workers

            yield from check_in_workers(self._session, job_count, targets, self.level)

    def _check_here(
        self, targets: Iterator[CheckTarget], count: int
    ) -> Generator[tuple[CheckTarget, CheckResult | None], None, None]:
        """Check objects in this process.

        The rows of the next object arrive while one is checked, by another connection: the results of checks need
        not wait for it.

        Args:
            targets: The objects.
            count: About how many objects these are. A single one needs no other connection.
        """
        other = self._catalog.second_connection() if count > 1 else nullcontext(self._catalog)
        with other as catalog, closing(_with_rows(catalog.verification, targets)) as prepared:
            for target, rows in prepared:
                with rows:
                    if self._should_end():
                        return
                    result = check_target(self._session, target, self.level, rows)
                yield target, result

    def _scope(self) -> VerifyScope:
        """Return the conditions for the objects that the options choose.

        Raises:
            InvalidInput: A chunk is being written, abandoned or deleted, so it has no object; or an abbreviated
                uuid fits several chunks.
            NotFound: The catalog has no such chunk, store, file or folder.
        """
        options = self._options
        chunks = [self._catalog.chunks.chunk(chunk) for chunk in options.chunks]
        for chunk in chunks:
            if chunk.state not in (ChunkState.COMMITTED, ChunkState.RETIRED):
                raise InvalidInput(f"the chunk is {chunk.state}: it has no object to verify", chunk=str(chunk.uuid))
        prefix = from_root(options.prefix).rstrip("/")
        if prefix and not self._catalog.verification.has_prefix(prefix):
            raise NotFound(NO_SUCH_PREFIX, path=prefix)
        return VerifyScope(
            self.level,
            chunks=[chunk.uuid for chunk in chunks],
            prefix=prefix or None,
            store=url_of_store_with_chunks(self._session, options.store),
            older_than_seconds=options.older_than,
            sample=options.sample,
        )

    def check_sources(self) -> VerifyReport:
        """Check sources, one after the other. A continued verify begins with the source that was interrupted."""
        from cafcat.operations.opened_sources import source_opener
        from cafcat.operations.verify.source_check import SourceCheck
        from cafcat.scanning.opening import SourceOptions

        options = self._options
        names = [os.fspath(source) for source in options.sources]
        shared: dict[str, Any] = {
            "prefix": options.prefix,
            "include": list(options.include),
            "exclude": list(options.exclude),
            "follow_symlinks": options.follow_symlinks,
            "unpack_tars": options.unpack_tars,
        }
        # Listings begin anew: the position of an interrupted ingest would hide the files before it.
        sources = source_opener(self._session, SourceOptions(**shared, restart_listing=True)).open(names)
        verification = self._catalog.verification
        scope = _printable({"sources": names, "folder": os.getcwd()} | shared)
        run = verification.begin(self.level, scope, restart=options.restart)
        self._session.progress.begin("verify")
        for source in sources[verification.checked(run.id) :]:
            if self._should_end():
                break
            check = SourceCheck(self._session)
            result = check.check(source)
            if result is None:
                self._interrupted = True
                break
            self._record(run, None, result, source.name)
        return self._finish(run)

    def _targets(self, run: VerifyRun, scope: VerifyScope) -> Iterator[CheckTarget]:
        """Yield the objects to check, until the user ends the verify.

        Objects are left out once their store was found to be out of reach.
        """
        after = TargetKey(0, 0)
        while page := self._catalog.verification.targets(run.id, scope, after, _PAGE_OBJECTS):
            for target in page:
                if self._should_end():
                    return
                if target.store not in self._stores_out_of_reach:
                    yield target
            if len(page) < _PAGE_OBJECTS:
                return
            after = page[-1].key

    def _record_object(self, run: VerifyRun, target: CheckTarget, result: CheckResult | None) -> None:
        """Store and report the result for a chunk or copy. If it is None, count the object as deleted meanwhile."""
        if result is None:
            self._counts["gone"] += 1
        elif not self._is_store_out_of_reach(target, result):
            self._record(run, target, result, self._locate(target))

    def _record(self, run: VerifyRun, target: CheckTarget | None, result: CheckResult, name: str | None) -> None:
        """Store the result of a check in the catalog, unless it is inconclusive. Then report it as an event.

        Args:
            run: The run of the check.
            target: The object that was checked; None for a source or the whole catalog.
            result: The result.
            name: Name of the object or source; None if it has none.
        """
        if result.is_conclusive:
            self._catalog.verification.record(run.id, self.level, target, result)
        else:
            self._counts["not known"] += 1
        self._counts["unchecked blocks"] += result.unchecked_blocks
        self._counts["absent"] += result.absent_files
        self._counts["unpacked"] += result.unpacked_files
        self._counts["unreadable files"] += result.unreadable_files
        self._counts["equal"] += result.equal_files
        self._session.emit(
            ObjectChecked(
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

    def _is_store_out_of_reach(self, target: CheckTarget, result: CheckResult) -> bool:
        """Return True if the object could not be checked because its whole store is out of reach.

        The store gets a single finding, which is reported but not stored: the history of the object has no result.
        """
        if result.verdict not in (Verdict.MISSING, Verdict.UNREADABLE) or not result.is_conclusive:
            return False
        if target.store in self._stores_out_of_reach:
            return True
        error = why_out_of_reach(self._session, target)
        if error is None:
            return False
        self._stores_out_of_reach.add(target.store)
        self._counts["not known"] += 1
        finding = Finding(FindingKind.UNREADABLE, f"no object of this store was checked: {error}")
        verdict = Verdict.UNREADABLE
        self._session.emit(ObjectChecked(None, target.store, False, target.store, verdict, 0, 0, (finding,)))
        return True

    def _locate(self, target: CheckTarget) -> str | None:
        """Return the path or URL of an object; None if its store cannot be opened."""
        try:
            return self._session.stores[target.store].locate(target.object_key)
        except CafcatError:
            return None

    def _should_end(self) -> bool:
        self._interrupted = self._session.should_end() or self._interrupted
        return self._interrupted

    def _finish(self, run: VerifyRun) -> VerifyReport:
        if not self._interrupted:
            self._catalog.verification.finish(run.id, self._stores_out_of_reach)
        tally = self._catalog.verification.tally(run.id)
        return VerifyReport(
            run=run.id,
            level=self.level,
            resumed=run.resumed,
            gone=self._counts["gone"],
            interrupted=self._interrupted,
            unchecked_blocks=self._counts["unchecked blocks"],
            absent=self._counts["absent"],
            unpacked=self._counts["unpacked"],
            unreadable_files=self._counts["unreadable files"],
            equal=self._counts["equal"],
            stores_out_of_reach=tuple(sorted(self._stores_out_of_reach)),
            **tally._replace(unreadable=tally.unreadable + self._counts["not known"])._asdict(),
        )


def _with_rows(
    verification: Verification, targets: Iterator[CheckTarget]
) -> Generator[tuple[CheckTarget, ChunkRows], None, None]:
    """Yield each target with the rows of its chunk, which the catalog begins to send one target ahead.

    The caller closes the rows that it gets.
    """
    ahead: deque[tuple[CheckTarget, ChunkRows]] = deque()
    try:
        for target in targets:
            ahead.append((target, verification.rows(target.chunk_id)))
            if len(ahead) > 1:
                yield ahead.popleft()
        while ahead:
            yield ahead.popleft()
    finally:
        for _, rows in ahead:
            rows.close()


def _job_count(jobs: int | None, totals: TargetTotals, level: VerifyLevel) -> int:
    """Return the number of worker processes to check with; 1 if this process is to check alone.

    The result is at most the number of objects, and at most 64.

    Args:
        jobs: The number that the user gave. None: one for each processor, or 1 if there is little to check.
        totals: Objects, files and bytes to check.
        level: INDEX or DATA.
    """
    if jobs is None:
        size_bytes = totals.size_bytes if level is VerifyLevel.DATA else 0
        if totals.files < _WORTH_WORKERS_FILES and size_bytes < _WORTH_WORKERS_BYTES:
            return 1
        jobs = processors()
    return max(1, min(jobs, totals.objects, _MOST_JOBS))


def _printable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with texts that Postgres can store: bytes that are not UTF-8 are escaped."""

    def shown(value: Any) -> Any:
        if isinstance(value, list):
            return [shown(item) for item in value]
        return printable(value) if isinstance(value, str) else value

    return {name: shown(value) for name, value in options.items()}

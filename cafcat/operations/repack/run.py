"""Copies the live files of chunks with much dead space into new chunks, and retires the old chunks.

A new chunk is committed in one transaction, from which on its paths point to it. An old chunk is retired in the
transaction that moves its last live file. At any moment each path points to one location.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from cafcat.catalog.chunks.rewriting import RewritableChunk
from cafcat.errors import (
    AccessDenied,
    NotFound,
    StoreFailed,
)
from cafcat.events import ChunkChosen
from cafcat.formats import registry as formats
from cafcat.model import Entry, FileProblem, ProblemKind
from cafcat.operations.audit import recorded
from cafcat.operations.chosen_stores import default_store, store_to_write, url_of_store_with_chunks
from cafcat.operations.chunk_contents import Unreadable, contents, decoded
from cafcat.operations.failures import note_failure
from cafcat.operations.joining import join_store
from cafcat.operations.new_store import list_new_store
from cafcat.operations.reachable_stores import ReachableStores
from cafcat.operations.recover.before import recover_before
from cafcat.operations.repack.options import RepackOptions
from cafcat.operations.repack.plan import RepackGroup, RepackPlan, chosen, refuse_elsewhere, refuse_logs
from cafcat.operations.repack.report import RepackReport
from cafcat.operations.rewriting import Rewriter, chunk_limits, chunk_target, live_files
from cafcat.session import Session
from cafcat.stores.base import Store
from cafcat.writing.limits import Limits

__all__ = ["Repack", "RepackGroup", "RepackPlan", "run"]


@recorded
def run(session: Session, options: RepackOptions) -> RepackReport:
    """Copy the live files of the chosen chunks into new chunks.

    Raises:
        NotFound: The catalog has no such chunk or store.
        InvalidInput: A chunk has no live files, or an option is out of range.
        Unsupported, NotInstalled: Chunks of the format cannot be written.
        Unavailable: The store of the settings, which adopted archives need, is not where its URL points.
        StoreFailed, AccessDenied: A store failed, or refused a request; chunks that were committed before stay.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    if options.format is not None:
        formats.for_writing(formats.validate_name(options.format))
    store = url_of_store_with_chunks(session, options.store)
    repack = Repack(session, options, chunk_limits(session, options.target_size))
    if not options.dry_run:
        for url in session.catalog.recovery.stores() if store is None else [store]:
            recover_before(session, url)
    plan = repack.plan(options, store)
    if any(chunk.is_adopted for chunk in plan.chunks):
        store_to_write(session)
    for chunk in plan.chunks:
        session.emit(_chosen_event(chunk))
    try:
        if options.executor is not None and not options.dry_run:
            from cafcat.operations.repack.cluster import repack_on_cluster

            return repack_on_cluster(session, options, repack, plan)
        return repack.run(plan, dry_run=options.dry_run)
    finally:
        session.progress.end()


class Repack:
    """State and steps of one `cafcat repack`. Several repacks and writers may work at the same time."""

    def __init__(self, session: Session, options: RepackOptions, limits: Limits) -> None:
        self._session = session
        self._catalog = session.catalog
        self._stores = ReachableStores(session)
        self._default_url = default_store(session).url
        self._limits = limits
        self._joins = options.join_store

    def plan(self, options: RepackOptions, store: str | None) -> RepackPlan:
        """Choose the chunks to repack, as the options say.

        Args:
            options: The options.
            store: URL of the only store to repack; None for all stores.

        Raises:
            NotFound: The catalog has no such chunk.
            InvalidInput: A chunk has no live files, or a named chunk is not in the only store to repack.
            Unsupported: A named chunk is an archive of logs, and the options choose no other format for it.
        """
        rewriting = self._catalog.rewriting
        if options.chunks:
            uuids = [self._catalog.chunks.chunk(name).uuid for name in options.chunks]
            found = rewriting.by_uuid(uuids)
            refuse_logs(found, options)
            refuse_elsewhere(found, store)
            return chosen(found, options)
        found = rewriting.wasteful(options.max_unused, options.small, store, options.format)
        plan = chosen(found, options)
        together = Counter(map(plan.group_of, plan.chunks))
        worth = [
            chunk
            for chunk in plan.chunks
            # A single small chunk would only become another chunk of its size.
            if together[plan.group_of(chunk)] > 1
            or chunk.dead_bytes > options.max_unused * chunk.data_bytes
            or chunk.format != (options.format or chunk.format)
        ]
        return plan._replace(chunks=worth)

    def run(self, plan: RepackPlan, *, dry_run: bool) -> RepackReport:
        """Copy the live files of the planned chunks into new chunks.

        A new chunk is in the store of the old ones; for adopted archives it is in the store of the settings. A
        damaged file stays where it is. A store that cannot be used is noted in the report, and its chunks are left
        out.

        Args:
            plan: The chunks.
            dry_run: Return the report only.

        Raises:
            StoreFailed, AccessDenied: A store failed while it was used.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        report = self.begin(plan, dry_run=dry_run)
        if dry_run:
            return report
        for group in self.groups(plan):
            if not report.interrupted:
                self._repack_store(group, report)
        self.finish(plan, report)
        return report

    def begin(self, plan: RepackPlan, *, dry_run: bool) -> RepackReport:
        """Return the report with the totals of a plan. Except in a dry run, pass them to the progress."""
        report = RepackReport(len(plan.chunks), plan.taken, plan.waiting, dry_run=dry_run)
        report.bytes_dead = sum(chunk.dead_bytes for chunk in plan.chunks)
        files = sum(chunk.live_files for chunk in plan.chunks)
        size_bytes = sum(chunk.live_bytes for chunk in plan.chunks)
        if dry_run:
            report.files_moved, report.bytes_moved = files, size_bytes
        else:
            self._session.progress.begin("repack", files=files, size_bytes=size_bytes)
        return report

    def finish(self, plan: RepackPlan, report: RepackReport) -> None:
        """Count in the report which chunks of a plan are retired now, and note where they have copies."""
        ids = [chunk.id for chunk in plan.chunks]
        report.chunks_retired = self._catalog.rewriting.retired(ids)
        if report.chunks_written:
            report.copies_in = self._catalog.copies.stores_of(ids)
            for url in {group.target for group in self.groups(plan)}:
                list_new_store(self._session, url)

    def groups(self, plan: RepackPlan) -> list[RepackGroup]:
        """Return the chunks of a plan by store and new format, the oldest of each group first."""
        groups: dict[tuple[str, str, str], list[RewritableChunk]] = defaultdict(list)
        for chunk in plan.chunks:
            store, archive_format = plan.group_of(chunk)
            groups[store, self._default_url if chunk.is_adopted else store, archive_format].append(chunk)
        # Files that were packed together stay together.
        return [RepackGroup(*key, sorted(chunks)) for key, chunks in sorted(groups.items())]

    def open_stores(self, group: RepackGroup, report: RepackReport) -> tuple[Store, Store] | None:
        """Return the store of a group, and the store for its new chunks; None if one of them cannot be used.

        The failure is noted in the report.
        """
        opened: list[Store] = []
        with note_failure(report.failed, f"store {group.url}"):
            store, to = self._stores.open(group.url), self._stores.open(group.target)
            join_store(self._session, to, allow_shared=self._joins)
            opened += [store, to]
        return (opened[0], opened[1]) if opened else None

    def _repack_store(self, group: RepackGroup, report: RepackReport) -> None:
        new_chunks = None
        if (stores := self.open_stores(group, report)) is not None:
            with note_failure(report.failed, f"store {group.url}"):
                new_chunks = chunk_target(self._catalog, stores[1], "repack", group.format)
        if stores is None or new_chunks is None:
            return
        rewriter = Rewriter(self._session, new_chunks, self._limits)
        try:
            with rewriter:
                self._repack_chunks(stores[0], group.chunks, rewriter, report)
        finally:
            _count(rewriter, report)

    def _repack_chunks(
        self, store: Store, chunks: Sequence[RewritableChunk], rewriter: Rewriter, report: RepackReport
    ) -> None:
        try:
            for chunk in chunks:
                if not rewriter.is_stopping():
                    self._repack_chunk(store, chunk, rewriter, report)
        except Unreadable as broke:
            # The store does not answer, so nothing is known to be damaged.
            rewriter.finish()
            raise broke.reason from broke
        rewriter.finish()

    def _repack_chunk(self, store: Store, chunk: RewritableChunk, rewriter: Rewriter, report: RepackReport) -> None:
        if self._is_taken(chunk, report) or self._is_missing(store, chunk, report):
            return
        files = live_files(self._catalog, chunk.id)
        archive_format = formats.by_name(chunk.format)
        for file, span in contents(store, chunk.object_key, files):
            try:
                is_moved = rewriter.move(chunk.id, file, decoded(archive_format, file, span))
            except Unreadable as error:
                is_moved = True
                self._report_failure(store, chunk, file, error, report)
            if not is_moved or rewriter.is_stopping():
                return

    def _is_taken(self, chunk: RewritableChunk, report: RepackReport) -> bool:
        """Return True if another process began to copy the files of a chunk after the plan was made.

        Such a chunk is counted in the report, unless all its files were moved already.
        """
        found = self._catalog.rewriting.by_id([chunk.id])
        if not found:
            return True
        report.taken += found[0].is_being_rewritten
        return found[0].is_being_rewritten

    def _is_missing(self, store: Store, chunk: RewritableChunk, report: RepackReport) -> bool:
        """Return True if the object of a chunk is missing, and note that once for all its files in the report."""
        try:
            store.stat(chunk.object_key)
        except NotFound as error:
            if found := self._catalog.rewriting.by_id([chunk.id]):
                report.files_damaged += found[0].live_files
                report.failed.append(f"chunk {chunk.uuid}: {error}; {_hint(chunk)}")
            return True
        return False

    def _report_failure(
        self, store: Store, chunk: RewritableChunk, file: Entry, error: Unreadable, report: RepackReport
    ) -> None:
        """Report a damaged file. Raises `error` again if the store does not answer or denies access.

        A file that left the chunk meanwhile is not damaged: the chunk can have been removed.
        """
        out_of_reach = isinstance(error.reason, StoreFailed) and store.is_remote
        if out_of_reach or isinstance(error.reason, AccessDenied):
            raise error
        if not self._is_still_there(chunk, file):
            return
        report.files_damaged += 1
        kind = ProblemKind.UNREADABLE if isinstance(error.reason, StoreFailed) else ProblemKind.CORRUPT
        self._session.emit(FileProblem(file.path, kind, f"{error}; {_hint(chunk)}"))

    def _is_still_there(self, chunk: RewritableChunk, file: Entry) -> bool:
        try:
            return self._catalog.files.locate(file.path).chunk == chunk.uuid
        except NotFound:
            return False


def _chosen_event(chunk: RewritableChunk) -> ChunkChosen:
    counts = (chunk.size_bytes, chunk.data_bytes, chunk.dead_bytes, chunk.live_bytes, chunk.live_files)
    return ChunkChosen(str(chunk.uuid), chunk.store, *counts)


def _count(rewriter: Rewriter, report: RepackReport) -> None:
    report.chunks_written += rewriter.chunks
    report.bytes_written += rewriter.bytes_written
    report.files_moved += rewriter.files
    report.bytes_moved += rewriter.bytes
    report.files_changed += rewriter.changed
    report.interrupted = report.interrupted or rewriter.interrupted


def _hint(chunk: RewritableChunk) -> str:
    """Return the hint for a damaged chunk. Without --chunk, `repair` skips damage that `verify` has not found."""
    return f"run cafcat repair --chunk {chunk.uuid}"

"""Copies chunks into another store on the workers of an executor."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from cafcat.catalog.chunks.copies import ChunkToCopy, Selection
from cafcat.catalog.chunks.owners import owner_name
from cafcat.operations.cluster_calls import ClusterCalls
from cafcat.operations.copy.options import CopyOptions
from cafcat.operations.copy.report import CopyReport
from cafcat.operations.copy.run import ChunkCopier
from cafcat.operations.reachable_stores import ReachableStores, reachable_of
from cafcat.operations.recover.before import recover_before
from cafcat.session import Session

__all__ = ["ChunksToCopy", "clear_leftovers", "copy_chunks", "copy_on_cluster", "copy_weight", "together"]

_MOST_BYTES: Final = 1 << 30
"""Number of bytes of small chunks that one call copies."""

_LOOKS: Final = 20
_LOOK_SECONDS: Final = 0.5
"""How often, and after how many seconds, a call looks again for copies of its chunks that are unfinished."""


class ChunksToCopy(NamedTuple):
    """The chunks that one call copies, and the URL of the store for the copies."""

    uuids: Sequence[UUID]
    to: str


def copy_on_cluster(
    session: Session, options: CopyOptions, copier: ChunkCopier, selection: Selection
) -> CopyReport:
    """Copy the chunks of a selection on the workers of an executor, and return the totals.

    Args:
        session: The session.
        options: Options with the executor.
        copier: Lists the chunks, and counts those that need no copy.
        selection: The chunks.

    Raises:
        NotFound: No chunk has a file below the prefix, or with this path.
        InvalidInput, Unavailable: The workers cannot be used, or a call failed too often.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        StoreFailed, AccessDenied: The target fails.
    """
    assert options.executor is not None  # noqa: S101 - for type checkers
    calls = ClusterCalls(session, options.executor, share_password=options.share_password)
    to = copier.report.store
    calls.check({to, *reachable_of(session, session.catalog.copies.stores(selection))})
    groups = calls.grouped(_without_copy(session, copier, selection), copy_weight)
    parts = (ChunksToCopy([chunk.uuid for chunk in group], to) for group in groups)
    with closing(calls.run(copy_chunks, parts)) as ended:
        reports = [report for _, report in ended]
    if not calls.interrupted:
        copier.enter_forgotten(selection)
    return replace(together([copier.report, *reports]), interrupted=calls.interrupted or copier.interrupted)


def copy_weight(chunk: ChunkToCopy) -> float:
    """Return the share of a call that a chunk is, by its bytes."""
    return chunk.size_bytes / _MOST_BYTES


def _without_copy(session: Session, copier: ChunkCopier, selection: Selection) -> Iterator[ChunkToCopy]:
    """Yield the chunks that need a copy. Count the others in the report of the copier."""
    for chunk in copier.chunks(selection):
        if (outcome := copier.outcome_without_copy(chunk)) is None:
            yield chunk
        else:
            session.emit(copier.count(chunk, outcome))


def copy_chunks(session: Session, part: ChunksToCopy) -> CopyReport:
    """Copy chunks on a worker, and return the totals. This is the call that executors run."""
    target = ReachableStores(session).open(part.to)
    clear_leftovers(session, part.uuids, target.url)
    copier = ChunkCopier(session, target, owner_name("copy"))
    for copied in copier.copy(Selection(uuids=part.uuids)):
        session.emit(copied)
    return copier.report


def clear_leftovers(session: Session, uuids: Sequence[UUID], to: str) -> None:
    """Recover unfinished copies of chunks that lost workers left in a store.

    Another worker may be recovering them right now, or a lost process may be about to end. So this waits up to ten
    seconds for unfinished copies. A copy that a worker of another host left is unfinished until its lease ends.

    Args:
        session: The session.
        uuids: The chunks.
        to: URL of the store.
    """
    for _ in range(_LOOKS):
        recover_before(session, to)
        chunks = session.catalog.copies.page(Selection(uuids=uuids), to)
        if all(chunk.copy_state in (None, "committed") for chunk in chunks):
            return
        time.sleep(_LOOK_SECONDS)


def together(reports: Sequence[CopyReport]) -> CopyReport:
    """Return the sums of several reports. A message that several reports have is listed once."""
    counts = {
        name: sum(getattr(report, name) for report in reports)
        for name in ("copied", "replaced", "found", "there", "own", "damaged", "bytes_copied", "chunks_failed")
    }
    failed = tuple(dict.fromkeys(message for report in reports for message in report.failed))
    return replace(reports[0], failed=failed, **counts)

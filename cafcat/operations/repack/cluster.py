"""Repacks chunks on the workers of an executor.

The plan is made once, by the coordinator. Each call copies the live files of a few chunks, whose sizes add up to
about the target size. So new chunks come out near that size, and no two calls copy the same chunk.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final, NamedTuple

from cafcat.catalog.chunks.rewriting import RewritableChunk
from cafcat.operations.cluster_calls import ClusterCalls
from cafcat.operations.recover.before import recover_before
from cafcat.operations.repack.options import RepackOptions
from cafcat.operations.repack.plan import RepackGroup, RepackPlan
from cafcat.operations.repack.report import RepackReport
from cafcat.operations.repack.run import Repack
from cafcat.operations.rewriting import chunk_limits
from cafcat.session import Session

__all__ = ["ChunksToRepack", "repack_chunks", "repack_on_cluster", "split"]

_MOST_CHUNKS: Final = 4
"""Largest number of new chunks of one call. Only the last one is small, so few new chunks are small."""
_LOOKS: Final = 20
_LOOK_SECONDS: Final = 0.5
"""How often, and after how many seconds, a call looks again for chunks that a lost worker was copying."""


class ChunksToRepack(NamedTuple):
    """The chunks that one call repacks.

    Attributes:
        ids: chunks.id of the chunks.
        target: URL of the store for the new chunks.
        options: Options of the operation, without the executor.
    """

    ids: Sequence[int]
    target: str
    options: RepackOptions


def repack_on_cluster(session: Session, options: RepackOptions, repack: Repack, plan: RepackPlan) -> RepackReport:
    """Copy the live files of the planned chunks into new chunks on the workers of an executor.

    Args:
        session: The session.
        options: Options with the executor.
        repack: The operation in this process.
        plan: The chunks.

    Returns:
        The totals of all workers.

    Raises:
        InvalidInput, Unavailable: The workers cannot be used, or a call failed too often.
        StoreFailed, AccessDenied: A store failed while it was used.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    assert options.executor is not None  # noqa: S101 - for type checkers
    report = repack.begin(plan, dry_run=False)
    calls = ClusterCalls(session, options.executor, share_password=options.share_password)
    groups = [group for group in repack.groups(plan) if repack.open_stores(group, report) is not None]
    calls.check({url for group in groups for url in (group.url, group.target)})
    target_bytes = chunk_limits(session, options.target_size).target_bytes
    parts = _parts(groups, replace(options, executor=None), target_bytes, calls.worker_count)
    with closing(calls.run(repack_chunks, parts)) as ended:
        for _, done in ended:
            _add(report, done)
    report.interrupted = report.interrupted or calls.interrupted
    repack.finish(plan, report)
    return report


def _parts(
    groups: Sequence[RepackGroup], options: RepackOptions, target_bytes: int, workers: int
) -> Iterator[ChunksToRepack]:
    for group in groups:
        for chunks in split(group.chunks, target_bytes, workers):
            yield ChunksToRepack([chunk.id for chunk in chunks], group.target, options)


def split(chunks: Sequence[RewritableChunk], target_bytes: int, workers: int) -> list[list[RewritableChunk]]:
    """Return the chunks in parts, one for each call, in the same order.

    A part fills up to four new chunks; fewer if there would be less than two parts for each worker.

    Args:
        chunks: Chunks whose files can share new chunks.
        target_bytes: Size of a new chunk.
        workers: Number of calls that run at the same time.
    """
    total = sum(map(_size_after, chunks))
    most = target_bytes * max(1, min(_MOST_CHUNKS, total // (target_bytes * 2 * workers)))
    parts: list[list[RewritableChunk]] = []
    sizes: list[int] = []
    for chunk in chunks:
        size_bytes = _size_after(chunk)
        if not parts or sizes[-1] + size_bytes > most:
            parts.append([])
            sizes.append(0)
        parts[-1].append(chunk)
        sizes[-1] += size_bytes
    if len(parts) > 1 and sizes[-1] < target_bytes / 2:
        # A single small chunk would only become another chunk of its size.
        last = parts.pop()
        parts[-1] += last
    return parts


def _size_after(chunk: RewritableChunk) -> int:
    """Return about how many bytes the live files of a chunk need, with their share of the index."""
    return chunk.size_bytes * chunk.live_bytes // max(chunk.data_bytes, 1)


def repack_chunks(session: Session, part: ChunksToRepack) -> RepackReport:
    """Repack chunks on a worker, and return the totals. This is the call that executors run."""
    plan = RepackPlan(_free_chunks(session, part), 0, 0, part.options.format)
    return Repack(session, part.options, chunk_limits(session, part.options.target_size)).run(plan, dry_run=False)


def _free_chunks(session: Session, part: ChunksToRepack) -> list[RewritableChunk]:
    """Return the chunks of a part that are still committed, after the leftovers of lost workers were recovered.

    A lost process may be about to end, so this waits up to ten seconds. A worker of another host that was lost has
    its chunks until its lease ends.
    """
    chunks: list[RewritableChunk] = []
    for _ in range(_LOOKS):
        recover_before(session, part.target)
        chunks = session.catalog.rewriting.by_id(part.ids)
        if not any(chunk.is_being_rewritten for chunk in chunks):
            break
        time.sleep(_LOOK_SECONDS)
    return chunks


def _add(report: RepackReport, done: RepackReport) -> None:
    """Add the totals of a call to the report of the operation."""
    names = (
        "taken",
        "chunks_written",
        "bytes_written",
        "files_moved",
        "bytes_moved",
        "files_changed",
        "files_damaged",
    )
    for name in names:
        setattr(report, name, getattr(report, name) + getattr(done, name))
    report.failed += [message for message in done.failed if message not in report.failed]
    report.interrupted = report.interrupted or done.interrupted

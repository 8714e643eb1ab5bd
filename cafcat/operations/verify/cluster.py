"""Checks objects of chunks and copies on the workers of an executor.

The workers only read. The coordinator stores the results in the catalog, as it does for checks of its own.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from cafcat.catalog.chunks.verification import CheckResult, CheckTarget
from cafcat.model import Verdict, VerifyLevel
from cafcat.operations.cluster_calls import ClusterCalls
from cafcat.operations.reachable_stores import reachable_of
from cafcat.operations.verify.chunk_check import check_target
from cafcat.operations.verify.options import VerifyOptions
from cafcat.operations.verify.reach import why_out_of_reach
from cafcat.session import Session

__all__ = ["check_batch", "check_on_cluster"]

_MOST_FILES: Final = 100_000
_MOST_BYTES: Final = 1 << 30
"""Number of files, and of bytes to read, of small objects that one call checks."""


class Batch(NamedTuple):
    """The objects that one call checks, and the level."""

    targets: Sequence[CheckTarget]
    level: VerifyLevel


class _Checked(NamedTuple):
    """The result of a check on a worker, and whether the worker reaches the store of the object."""

    result: CheckResult | None
    is_reached: bool


def check_on_cluster(
    session: Session,
    options: VerifyOptions,
    stores: Iterable[str],
    targets: Iterator[CheckTarget],
    level: VerifyLevel,
) -> Generator[tuple[CheckTarget, CheckResult | None], None, None]:
    """Check objects on the workers of an executor, and yield each with its result as the calls end.

    If a worker does not reach a store that this process reaches, this process checks the object.

    Args:
        session: Receives the progress, and can stop the checks.
        options: Options with the executor.
        stores: URLs of the stores of the objects.
        targets: The objects to check.
        level: INDEX or DATA.

    Raises:
        InvalidInput, Unavailable: The workers cannot be used, or a call failed too often.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    assert options.executor is not None  # noqa: S101 - for type checkers
    calls = ClusterCalls(session, options.executor, share_password=options.share_password)
    calls.check(reachable_of(session, stores))
    warned: set[str] = set()
    groups = calls.grouped(targets, lambda target: _weight(target, level))
    with closing(calls.run(check_batch, (Batch(group, level) for group in groups))) as ended:
        for batch, checks in ended:
            for target, (result, is_reached) in zip(batch.targets, checks, strict=True):
                if is_reached or why_out_of_reach(session, target) is not None:
                    yield target, result
                    continue
                if target.store not in warned:
                    session.warn(
                        f"a worker does not reach the store {target.store}: this process checks its objects"
                    )
                    warned.add(target.store)
                yield target, check_target(session, target, level)


def _weight(target: CheckTarget, level: VerifyLevel) -> float:
    """Return the share of a call that an object is, by its files, or by its bytes if all are read."""
    size_bytes = target.size_bytes if level is VerifyLevel.DATA else 0
    return max(target.file_count / _MOST_FILES, size_bytes / _MOST_BYTES)


def check_batch(session: Session, batch: Batch) -> list[_Checked]:
    """Check objects on a worker, and return the results in the same order."""
    return [_check(session, target, batch.level) for target in batch.targets]


def _check(session: Session, target: CheckTarget, level: VerifyLevel) -> _Checked:
    result = check_target(session, target, level)
    is_doubtful = (
        result is not None and result.is_conclusive and result.verdict in (Verdict.MISSING, Verdict.UNREADABLE)
    )
    return _Checked(result, not is_doubtful or why_out_of_reach(session, target) is None)

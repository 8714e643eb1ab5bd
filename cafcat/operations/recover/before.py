"""Recovers the leftovers of dead writers in a store before another operation writes there."""

from cafcat.errors import CafcatError
from cafcat.session import Session
from cafcat.support.quantities import plural

__all__ = ["recover_before"]


def recover_before(session: Session, store_url: str) -> None:
    """Adopt or remove those leftovers of dead writers in a store that have rows in the catalog.

    Journal records that the store lacks are written, and ingest runs of dead processes are recorded as failed.
    Without leftovers, this costs one query. A failure is only a warning, because the operation that follows does
    not depend on the result.

    Args:
        session: The session.
        store_url: URL of the store.
    """
    try:
        left = session.catalog.recovery.leftovers(store_url)
        if left.in_store:
            _recover(session, store_url)
        if left.of_runs:
            session.catalog.runs.fail_dead_runs()
    except CafcatError as error:
        session.warn(f"leftovers of an earlier run could not be recovered: {error}")


def _recover(session: Session, store_url: str) -> None:
    from cafcat.operations.recover.run import Recovery

    recovery = Recovery(session, dry_run=False)
    recovery.recover_rows(store_url)
    report = recovery.report
    for message in report.failed:
        session.warn(f"leftovers of an earlier run could not be recovered: {message}")
    if report.adopted or report.abandoned:
        session.warn(
            f"recovered the leftovers of an earlier run: {plural(report.adopted, 'chunk')} adopted "
            f"({plural(report.files_adopted, 'file')}), {plural(report.abandoned, 'chunk')} abandoned"
        )

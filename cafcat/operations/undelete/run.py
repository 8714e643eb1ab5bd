"""Bring removed files back."""

from collections.abc import Iterator

from cafcat.model import RetiredLocation
from cafcat.operations.audit import recorded
from cafcat.operations.names import check_names
from cafcat.operations.removing import Removing
from cafcat.operations.undelete.options import UndeleteOptions
from cafcat.operations.undelete.report import UndeleteReport
from cafcat.session import Session

__all__ = ["removed", "run"]


@recorded
def run(session: Session, options: UndeleteOptions) -> UndeleteReport:
    """Bring removed files back, all in one transaction.

    Until the commit, an exception of `Session.checkpoint` leaves the catalog unchanged.

    Raises:
        InvalidInput: One of `folders` cannot be the name of a folder of the catalog; or `paths` or `folders` is a
            single string.
        CatalogUnavailable: The files could not be brought back, or the outcome of the commit is unknown.
        CatalogOutdated: The database has another schema.
    """
    paths, folders = check_names(options.paths), check_names(options.folders)
    try:
        return Removing(session).undelete(paths, folders)
    finally:
        session.progress.end()


def removed(session: Session, prefix: str = "") -> Iterator[RetiredLocation]:
    """Yield the removed files that `undelete` can restore, in path order.

    Args:
        session: The session.
        prefix: Folder, whose files are yielded, or path of a file, as the user typed it; "" for all files.

    Raises:
        InvalidInput: The name cannot be that of a folder.
    """
    return Removing(session).removed(prefix)

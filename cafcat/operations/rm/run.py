"""Remove files from the catalog."""

from cafcat.operations.audit import recorded
from cafcat.operations.names import check_names
from cafcat.operations.removing import Removing
from cafcat.operations.rm.options import RmOptions
from cafcat.operations.rm.report import RemoveReport
from cafcat.session import Session

__all__ = ["run"]


@recorded
def run(session: Session, options: RmOptions) -> RemoveReport:
    """Remove files from the catalog, all in one transaction.

    Until the commit, an exception of `Session.checkpoint` leaves the catalog unchanged.

    Raises:
        InvalidInput: One of `folders` cannot be the name of a folder of the catalog; `paths` or `folders` is a
            single string; or a path is no text.
        CatalogUnavailable: The files could not be removed, or the outcome of the commit is unknown.
        CatalogOutdated: The database has another schema.
    """
    paths, folders = check_names(options.paths), check_names(options.folders)
    try:
        return Removing(session).remove(paths, folders, dry_run=options.dry_run)
    finally:
        session.progress.end()

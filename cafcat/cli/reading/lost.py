"""Warns if the catalog is empty, but the store of the settings is in use: then a catalog was probably lost."""

from typing import TYPE_CHECKING

from cafcat.cli.call import Call
from cafcat.errors import CafcatError

if TYPE_CHECKING:
    from cafcat.session import Session

__all__ = ["ROWS_BACK", "find_lost", "warn_if_lost"]

ROWS_BACK = (
    "to bring the rows back: cafcat restore (a backup) or cafcat rebuild (the stores), into an empty catalog"
)


def find_lost(session: "Session") -> CafcatError | None:
    """Return an error with the remedies if the catalog is empty, but the store of the settings is in use.

    A store is in use if it has chunks or journal records, or the marker of another catalog. The store is read only
    if the catalog is empty, which one query shows.

    Returns:
        The error, which is not raised; None if the catalog is not lost, or this cannot be found out.
    """
    from cafcat.operations.joining import lost_catalog

    try:
        return lost_catalog(session)
    except CafcatError:
        return None  # the command's own error has the reason


def warn_if_lost(call: Call, session: "Session") -> bool:
    """Print a warning with the remedies if the catalog is empty, but the store of the settings is in use.

    With --quiet and without --json, the warning is not printed.

    Returns:
        True if the catalog is empty, but the store is in use.
    """
    if (lost := find_lost(session)) is not None:
        call.warn(str(lost))
    return lost is not None

"""Warns if the catalog is empty, but its store has chunks: then the catalog was lost."""

from typing import TYPE_CHECKING

from cafcat.cli.call import Call
from cafcat.errors import CafcatError

if TYPE_CHECKING:
    from cafcat.packed_files import PackedFiles

__all__ = ["warn_if_lost"]


def warn_if_lost(call: Call, repository: "PackedFiles") -> CafcatError | None:
    """Print a warning with the remedies if the catalog is empty, but the store of the settings is in use.

    A store is in use if it has chunks, or the marker of another catalog. It is read only if the catalog is empty,
    which one query shows.

    Returns:
        The error with the remedies that was printed; None if the catalog is not lost, or this cannot be found out.
    """
    try:
        lost = repository.lost_catalog()
    except CafcatError:
        return None  # the command's own error has the reason
    if lost is not None:
        call.warn(str(lost))
    return lost

"""The sign of a lost database: an empty catalog, although its store has chunks."""

from contextlib import suppress

from cafcat.errors import AccessDenied, CafcatError, InvalidInput, NotFound, StoreFailed, Unsupported
from cafcat.operations.chosen_stores import default_store
from cafcat.operations.joining import lost_catalog_of
from cafcat.session import Session

__all__ = ["lost_catalog"]


def lost_catalog(session: Session) -> CafcatError | None:
    """Return an error with the remedies if the catalog is empty, but the store of the settings is in use.

    A store is in use if it has chunks, or the marker of another catalog.

    Returns:
        None if the catalog is not lost, or if that cannot be found out, because the store cannot be read.
    """
    with suppress(AccessDenied, NotFound, StoreFailed, InvalidInput, Unsupported):
        return lost_catalog_of(session.catalog, default_store(session))
    return None

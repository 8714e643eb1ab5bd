"""Lists a new store in the journals of all stores: a rebuild from the others misses it only if it is listed."""

from cafcat.session import Session

__all__ = ["list_new_store"]


def list_new_store(session: Session, url: str) -> None:
    """Write a journal record with all stores into each store, if no record lists this one yet.

    Operations call this after they have committed chunks. It costs one statement if the store is listed, or is the
    only one.

    Args:
        session: The session.
        url: URL of the store with the new chunks.

    Raises:
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    if session.catalog.removal.is_unlisted(url):
        from cafcat.operations.removing import Removing

        Removing(session).record_stores()

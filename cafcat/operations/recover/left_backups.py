"""Removes half-written backups whose writers died, and objects of backups that the catalog dropped."""

from cafcat.catalog.catalog import Catalog
from cafcat.stores.base import Store
from cafcat.writing.lease import LEASE_SECONDS

__all__ = ["recover_backups", "remove_backup"]


def recover_backups(catalog: Catalog, store: Store, owner: str) -> int:
    """Remove the leftovers of unfinished, abandoned and deleted backups in a store.

    Args:
        catalog: The catalog.
        store: The store.
        owner: Name of this process as the owner of leases.

    Returns:
        The number of backups whose leftovers were removed.

    Raises:
        StoreFailed, AccessDenied: The store failed, or refused the request.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    backups = catalog.backups
    for found in backups.overdue(store.url):
        if backups.acquire(found, owner, LEASE_SECONDS):
            backups.abandon(found.id)
    remains = backups.remains(store.url)
    for found in remains:
        remove_backup(catalog, store, found.id, found.object_key, found.upload_id)
    return len(remains)


def remove_backup(catalog: Catalog, store: Store, backup: int, key: str, upload_id: str | None = None) -> None:
    """Remove upload and object of a backup, then record in its row that nothing is left.

    Args:
        catalog: The catalog.
        store: The store.
        backup: `backups.id`.
        key: Key of the backup.
        upload_id: Id of an unfinished upload of the backup; None if it is unknown or there is none.

    Raises:
        StoreFailed, AccessDenied: The store failed, or refused the request.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    store.discard(key, upload_id)
    store.delete(key)
    catalog.backups.record_removed(backup)

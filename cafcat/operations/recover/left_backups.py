"""Backups that were left half-written, and objects of those that are not kept any more."""

from cafcat.catalog.catalog import Catalog
from cafcat.stores.base import Store
from cafcat.writing.lease import LEASE_SECONDS

__all__ = ["recover_backups", "remove_backup"]


def recover_backups(catalog: Catalog, store: Store, owner: str) -> int:
    """Removes what backups left behind in a store whose writers died, or that could not be removed before. Returns
    how many. Raises StoreFailed, CatalogUnavailable."""
    backups = catalog.backups
    for found in backups.overdue(store.url):
        if backups.acquire(found, owner, LEASE_SECONDS):
            backups.abandon(found.id)
    remains = backups.remains(store.url)
    for found in remains:
        remove_backup(catalog, store, found.id, found.object_key, found.upload_id)
    return len(remains)


def remove_backup(catalog: Catalog, store: Store, backup: int, key: str, upload_id: str | None = None) -> None:
    """The object, and what an upload left; then the row says so. Raises StoreFailed, CatalogUnavailable."""
    store.discard(key, upload_id)
    store.delete(key)
    catalog.backups.record_removed(backup)

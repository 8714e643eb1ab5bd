"""Checks that an object and the other replicas of its chunk are separate objects.

Two URLs, or a link, can lead to the same object.
"""

from typing import Protocol
from uuid import UUID

from cafcat.catalog.catalog import Catalog
from cafcat.errors import CafcatError, CatalogOutdated, CatalogUnavailable, Conflict
from cafcat.stores.base import Store
from cafcat.stores.distinct import DistinctStores

__all__ = ["OtherReplicas", "StoresByUrl"]


class StoresByUrl(Protocol):
    """Stores by their URL in `chunks.store`. A look-up raises CafcatError if the store cannot be opened."""

    def __getitem__(self, url: str, /) -> Store: ...


class OtherReplicas:
    """Compares the location of an object with the replicas of its chunk. Comparisons of stores are cached."""

    def __init__(self, catalog: Catalog, stores: StoresByUrl) -> None:
        self._copies = catalog.copies
        self._stores = stores
        self._distinct = DistinctStores()

    def check(self, store: Store, chunk: UUID, key: str) -> None:
        """Check that an object would be a new replica of a chunk.

        The location must differ from those of the chunk itself and of its copies, copies left by a migration
        included. Replicas in a store with the same URL are not compared. The store of a replica counts as a
        different place if it cannot be opened or probed. This is enough for writing, not for removing.

        Args:
            store: The store of the object.
            chunk: Uuid of the chunk.
            key: Key of the object.

        Raises:
            InvalidInput: The store is the store of a replica under another name, or both objects are the same file.
            StoreFailed, AccessDenied: The store does not accept the probe object.
            StoreFailed: The operating system cannot compare two folders or files.
        """
        for url, other_key in self._copies.replicas_of(chunk):
            if url != store.url and (other := self._opened(url)) is not None:
                self._distinct.check(store, other, (key, other_key))

    def prove(self, store: Store, chunk: UUID, key: str, *, is_listed: bool = False) -> None:
        """Prove that the chunk's own object stays if an object is removed from a store.

        Copies are only checked, as `check` does, and those that a migration left are ignored. A deleted chunk has
        no replicas, so the proof succeeds.

        Args:
            store: The store of the object.
            chunk: Uuid of the chunk.
            key: Key of the object.
            is_listed: True if the catalog still has the object as a copy of the chunk.

        Raises:
            InvalidInput: The store is the store of the chunk or of a copy under another name, or both objects are
                the same file.
            Conflict: The catalog has the chunk, or a copy that is needed, at exactly this location.
            Unavailable, AccessDenied: A store cannot be opened or probed, or two folders cannot be compared.
        """
        for is_copy, url, other_key in self._copies.active_replicas(chunk):
            if (url, other_key) == (store.url, key):
                if is_copy and is_listed:
                    continue
                raise Conflict(f"the catalog has the chunk at {store.locate(key)} again", chunk=str(chunk))
            if not is_copy:
                self._distinct.prove(store, self._stores[url], (key, other_key))
            elif (other := self._opened(url)) is not None:
                self._distinct.check(store, other, (key, other_key))

    def _opened(self, url: str) -> Store | None:
        """Return a store; None if it cannot be opened now."""
        try:
            return self._stores[url]
        except (CatalogUnavailable, CatalogOutdated):
            raise
        except CafcatError:
            return None

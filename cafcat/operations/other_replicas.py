"""Where else the bytes of a chunk are, and that a place is none of these under another name."""

from typing import Protocol
from uuid import UUID

from cafcat.catalog.catalog import Catalog
from cafcat.errors import CafcatError, CatalogOutdated, CatalogUnavailable, Conflict
from cafcat.stores.base import Store
from cafcat.stores.distinct import DistinctStores

__all__ = ["OtherReplicas", "StoresByUrl"]


class StoresByUrl(Protocol):
    """Stores by their URL in `chunks.store`. A look-up may raise."""

    def __getitem__(self, url: str, /) -> Store: ...


class OtherReplicas:
    """For one piece of work. Chunks are named by their uuids."""

    def __init__(self, catalog: Catalog, stores: StoresByUrl) -> None:
        self._copies = catalog.copies
        self._stores = stores
        self._distinct = DistinctStores()

    def check(self, store: Store, chunk: UUID, key: str) -> None:
        """Check that an object in a store would be a new place of a chunk: neither that of the chunk itself nor
        that of a copy, one that a migration left behind included. Errors as of DistinctStores.check."""
        for url, other_key in self._copies.replicas_of(chunk):
            if url != store.url and (other := self._opened(url)) is not None:
                self._distinct.check(store, other, (key, other_key))

    def prove(self, store: Store, chunk: UUID, key: str) -> None:
        """Prove that removing an object from a store leaves the chunk alone, and check that it leaves those copies
        alone that are kept and within reach. A chunk that was deleted has no place any more.

        Raises:
            InvalidInput: the store is that of the chunk, or of a copy, by another name.
            Conflict: the catalog has the chunk at that very place.
            Unavailable, AccessDenied: it cannot be proved.
        """
        for is_copy, url, other_key in self._copies.active_replicas(chunk):
            if (url, other_key) == (store.url, key):
                raise Conflict(f"the catalog has the chunk at {store.locate(key)} again", chunk=str(chunk))
            if not is_copy:
                self._distinct.prove(store, self._stores[url], (key, other_key))
            elif (other := self._opened(url)) is not None:
                self._distinct.check(store, other, (key, other_key))

    def _opened(self, url: str) -> Store | None:
        """None for a store that is not there now."""
        try:
            return self._stores[url]
        except (CatalogUnavailable, CatalogOutdated):
            raise
        except CafcatError:
            return None

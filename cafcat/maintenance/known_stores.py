"""Stores that are what the catalog means by their URL, each looked at once."""

from collections.abc import Callable
from typing import Final

from cafcat.catalog.catalog import Catalog
from cafcat.errors import CafcatError, CatalogOutdated, CatalogUnavailable, StoreFailed
from cafcat.stores.base import Store, has

__all__ = ["KnownStores"]

_KNOWN_OBJECTS: Final = 10


class KnownStores:
    """For one piece of work: a store that failed once is not waited for again."""

    def __init__(self, catalog: Catalog, store_of: Callable[[str], Store]) -> None:
        """`store_of` gives the store of a URL in `chunks.store`."""
        self._catalog = catalog
        self._store_of = store_of
        self._found: dict[str, Store | CafcatError] = {}

    def open(self, url: str) -> Store:
        """A store that answers, and has one of the objects that the catalog has there: not the empty folder where a
        disk is mounted at other times, nor a bucket of the same name elsewhere. What we write there would be lost,
        and what is not there may still be in the right one. Raises StoreFailed, AccessDenied, InvalidInput, ..."""
        if url not in self._found:
            self._found[url] = self._look(url)
        found = self._found[url]
        if isinstance(found, CafcatError):
            raise found
        return found

    def _look(self, url: str) -> Store | CafcatError:
        try:
            store = self._store_of(url)
            known = self._catalog.recovery.newest(url, _KNOWN_OBJECTS)
            if not known or any(has(store, key) for key in known):
                return store
        except (CatalogUnavailable, CatalogOutdated):
            raise
        except CafcatError as error:
            return error
        hint = "is its disk mounted, its endpoint the right one?"
        return StoreFailed(
            f"the store {url} has none of the chunks that the catalog has there, as {known[0]}", hint=hint
        )

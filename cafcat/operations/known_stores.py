"""Stores that are what the catalog means by their URL, each looked at once."""

import shlex
from typing import Final

from cafcat.errors import CafcatError, CatalogOutdated, CatalogUnavailable, StoreFailed, Unavailable
from cafcat.session import Session
from cafcat.stores.base import Store, has
from cafcat.stores.presence import elsewhere, why_not_there

__all__ = ["KnownStores"]

_KNOWN_OBJECTS: Final = 10


class KnownStores:
    """For one piece of work: a store that failed once is not waited for again."""

    def __init__(self, session: Session) -> None:
        self._catalog = session.catalog
        self._stores = session.stores
        self._found: dict[str, Store | CafcatError] = {}

    def __getitem__(self, url: str) -> Store:
        return self.open(url)

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

    def open_to_write(self, url: str) -> Store:
        """As `open`, for what is new: the catalog has a row of the store afterwards. It is also opened where the
        newest objects are missing, as long as it has others of cafcat's. Raises Unavailable for a store that is
        elsewhere, StoreFailed, AccessDenied, InvalidInput, ..."""
        store = self.check_to_write(url)
        self._catalog.stores.register(store.url)
        return store

    def check_to_write(self, url: str) -> Store:
        """As `open_to_write`, without a row."""
        store = self.check_place(url)
        self._check_not_moved(store)
        return store

    def check_place(self, url: str) -> Store:
        """As `check_to_write`, also for a place that a store was moved away from: it was named as a new one."""
        store = self._stores[url]
        known = self._catalog.recovery.newest(store.url, _KNOWN_OBJECTS)
        if known and not any(has(store, key) for key in known):
            why = why_not_there(store, known[0])
            if why is not None:
                raise elsewhere(store.url, why)
        return store

    def _check_not_moved(self, store: Store) -> None:
        """Raise Unavailable for the empty place of a store that was moved away: a setting is out of date."""
        place = self._catalog.stores.moved_to(store.url)
        if place is not None and why_not_there(store) is not None:
            hint = (
                f"name the store where it is now; `cafcat store add NAME {shlex.quote(store.url)}` makes a new one"
            )
            raise Unavailable(f"the store {store.url} was moved to {place}", hint=hint)

    def _look(self, url: str) -> Store | CafcatError:
        try:
            store = self._stores[url]
            known = self._catalog.recovery.newest(url, _KNOWN_OBJECTS)
            if not known:
                self._check_not_moved(store)
            if not known or any(has(store, key) for key in known):
                return store
            if (why := why_not_there(store, known[0])) is not None:
                return elsewhere(url, why)
        except (CatalogUnavailable, CatalogOutdated):
            raise
        except CafcatError as error:
            return error
        hint = "is its disk mounted, its endpoint the right one? `cafcat store move` tells where it is now"
        return StoreFailed(
            f"the store {url} has none of the chunks that the catalog has there, as {known[0]}", hint=hint
        )

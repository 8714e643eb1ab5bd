"""Opens stores, and checks that each is at the place where its URL points.

The check looks for objects in the store that the catalog has there. An unmounted disk, for example, fails it.
"""

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from cafcat.errors import CafcatError, CatalogOutdated, CatalogUnavailable, StoreFailed, Unavailable
from cafcat.session import Session
from cafcat.stores.base import Store, has
from cafcat.stores.marker import catalogs_of
from cafcat.stores.presence import elsewhere, why_not_there

if TYPE_CHECKING:
    from cafcat.catalog.catalog import Catalog

__all__ = ["ReachableStores", "check_present", "reachable_of", "why_another"]

_NEWEST_OBJECTS: Final = 10
"""Largest number of newest chunks, of newest copies and of newest backups that are looked for in a store."""


class ReachableStores:
    """Opens stores for one operation, after a check that each is where its URL points.

    `open` checks each store once: if that failed, later calls raise the same error. The other methods check at
    every call.
    """

    def __init__(self, session: Session) -> None:
        self._catalog = session.catalog
        self._stores = session.stores
        self._found: dict[str, Store | CafcatError] = {}

    def __getitem__(self, url: str) -> Store:
        """Return a store that has one of its newest objects, or is new to the catalog: the same as `open`."""
        return self.open(url)

    def open(self, url: str) -> Store:
        """Return a store that has one of the newest objects of the catalog there, or is new to the catalog.

        A store is new to the catalog if the catalog has no object there. This check excludes the empty folder where
        a disk is not mounted, and a bucket of the same name on another server. Objects written to such a wrong
        place would be lost, and an object missing there can exist in the right one.

        Args:
            url: URL of the store in the catalog.

        Raises:
            Unavailable: The store is not at its URL any more: its disk is not mounted, or the store was moved.
            StoreFailed: The store does not answer, or has other objects of cafcat, but none of its newest ones.
            AccessDenied: The store refuses the request.
            InvalidInput: The URL cannot be opened.
        """
        if url not in self._found:
            self._found[url] = self._look(url)
        found = self._found[url]
        if isinstance(found, CafcatError):
            raise found
        return found

    def check_to_write(self, url: str) -> Store:
        """Return a store for new objects. The catalog is not changed: `join_store` enters a new store.

        Unlike `open`, this accepts a store without its newest objects if the store has any other object of cafcat.

        Args:
            url: URL of the store.

        Raises:
            Unavailable: The store is not at its URL any more: its disk is not mounted, or the store was moved.
            StoreFailed, AccessDenied: The store does not answer, or refuses the request.
            InvalidInput: The URL cannot be opened.
        """
        store = self.check_place(url)
        self._check_not_moved(store)
        return store

    def check_place(self, url: str) -> Store:
        """Return a store that has one of its newest objects, or another object of cafcat, or is new to the catalog.

        Unlike `check_to_write`, this accepts the old URL of a store that was moved away: the user named this URL
        for a new store.

        Raises:
            Unavailable: The store is not at its URL any more, for example because its disk is not mounted.
            StoreFailed, AccessDenied: The store does not answer, or refuses the request.
            InvalidInput: The URL cannot be opened.
        """
        store = self._stores[url]
        check_present(store, self._catalog)
        return store

    def _check_not_moved(self, store: Store) -> None:
        """Raise Unavailable if a store was moved away from this URL, and no object of cafcat is at this URL now.

        A setting, or the user, then still names the old URL.
        """
        place = self._catalog.stores.moved_to(store.url)
        if place is not None and why_not_there(store) is not None:
            is_store = self._catalog.stores.has(place)
            left = "" if is_store else ", which the catalog does not have any more"
            use = "use the new URL" if is_store else "name another store (cafcat store ls)"
            hint = f"{use}; to make a new store here, run `cafcat store add NAME {shlex.quote(store.url)}`"
            raise Unavailable(f"the store {store.url} was moved to {place}{left}", hint=hint)

    def _look(self, url: str) -> Store | CafcatError:
        try:
            store = self._stores[url]
            known = self._catalog.recovery.newest(url, _NEWEST_OBJECTS)
            if not known:
                self._check_not_moved(store)
            if not known or any(has(store, key) for key in known):
                return store
            if (why := why_another(store, self._catalog, known[0])) is not None:
                return elsewhere(url, why)
        except (CatalogUnavailable, CatalogOutdated):
            raise
        except CafcatError as error:
            return error
        hint = (
            "check its disk or endpoint; if the store was moved, run `cafcat store move`; "
            f"if its objects are lost for good: cafcat store rm {shlex.quote(url)} --lost"
        )
        message = f"the store {url} has none of its newest objects, for example {known[0]} is missing"
        return StoreFailed(message, hint=hint)


def check_present(store: Store, catalog: "Catalog") -> None:
    """Check that a store has one of its newest objects, or another object of cafcat, or is new to the catalog.

    Raises:
        Unavailable: The store is not at its URL any more, for example because its disk is not mounted.
        StoreFailed, AccessDenied: The store does not answer, or refuses the request.
    """
    known = catalog.recovery.newest(store.url, _NEWEST_OBJECTS)
    if known and not any(has(store, key) for key in known):
        why = why_another(store, catalog, known[0])
        if why is not None:
            raise elsewhere(store.url, why)


def why_another(store: Store, catalog: "Catalog", missing: str) -> str | None:
    """Return why a store that lacks an object seems to be another one than the catalog has at its URL.

    There may be no store, as `why_not_there` finds out, or one that only other catalogs have joined.

    Args:
        store: The store.
        catalog: The catalog.
        missing: Key of the object.

    Returns:
        The reason, for a message; None if the store seems to be the right one.

    Raises:
        StoreFailed, AccessDenied: The store does not answer, or refuses the request.
    """
    if (why := why_not_there(store, missing)) is not None:
        return why
    identity = catalog.identities.of(store.url)
    others = catalogs_of(store)
    if identity.store is None or not others or identity.catalog in others:
        return None  # without any marker, the store may be a copy that was put into the place of a lost one
    return f"it is a store of another catalog, {others[0]}"


def reachable_of(session: Session, urls: Iterable[str]) -> list[str]:
    """Return those of several URLs of stores that `ReachableStores.open` can open.

    Raises:
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    stores, found = ReachableStores(session), []
    for url in urls:
        try:
            found.append(stores.open(url).url)
        except (CatalogUnavailable, CatalogOutdated):
            raise
        except CafcatError:
            continue
    return found

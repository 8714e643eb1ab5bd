"""What all of custody has: a catalog, its stores, their settings."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cafcat.catalog.catalog import Catalog
from cafcat.errors import InvalidInput, NotFound
from cafcat.progress import Progress
from cafcat.settings.settings import Settings
from cafcat.stores.base import OpensFiles, Store
from cafcat.wiring import opening_of

if TYPE_CHECKING:
    from cafcat.operations.joining import Joining
    from cafcat.scanning.opening import Opening, SourceOptions

__all__ = ["Keeper", "ignore", "never"]


class Keeper:
    """One catalog and its stores."""

    def __init__(self, catalog: Catalog, store_of: Callable[[str], Store], settings: Settings) -> None:
        """`store_of` gives the store of a URL in `chunks.store`."""
        self._catalog = catalog
        self._store_of = store_of
        self._settings = settings

    def _given_store(self, given: str) -> Store:
        """Return the store that somebody named: by a name in the configuration, a name in the catalog, a URL, or a
        folder."""
        from cafcat.settings.stores import chosen_url, possible_name
        from cafcat.settings.values import Given

        named = self._store_called(possible_name(given, self._settings.stores))
        url = chosen_url(Given(given, "argument", Path.cwd()), "store", self._settings.stores)
        return named or self._store_of(url)

    def _default_store(self) -> Store:
        """Return the store of the settings."""
        return self._store_called(self._settings.store_name) or self._store_of(self._settings.store)

    def _store_called(self, name: str | None) -> Store | None:
        """Return the store that has this name in the catalog."""
        url = None if name is None else self._catalog.stores.url_of(name)
        return None if url is None else self._store_of(url)

    def store_to_write(self, given: str | None = None, *, dry_run: bool = False) -> Store:
        """Open a store for what is new, and note it in the catalog unless it is a dry run: the store that somebody
        named, else that of the settings. Raises Unavailable for a store that is elsewhere, StoreFailed,
        AccessDenied, InvalidInput, also for a bare word that names neither a store nor a folder."""
        from cafcat.operations.known_stores import KnownStores

        store = self._store_for_new(given)
        stores = KnownStores(self._catalog, self._store_of)
        return stores.check_to_write(store.url) if dry_run else stores.open_to_write(store.url)

    def _store_for_new(self, given: str | None) -> Store:
        """Return the store that somebody named, else that of the settings. Raises InvalidInput for a bare word that
        names neither a store nor a folder: a slip of the pen must not make a new store."""
        from cafcat.settings.stores import possible_name

        if given is None:
            word, store = self._settings.store_name, self._default_store()
        else:
            word, store = possible_name(given, self._settings.stores), self._given_store(given)
        is_missing = isinstance(store, OpensFiles) and not os.path.isdir(store.folder)
        if word is not None and is_missing and not self._catalog.stores.has(store.url):
            hint = f"`cafcat store add {word} URL` names a store; ./{word} is a folder"
            raise InvalidInput(f"there is no store or folder {word}", hint=hint)
        return store

    def _store_with_chunks(self, named: str | None) -> str | None:
        """The URL of a store that somebody named; None for all. Raises NotFound if the catalog has nothing there: a
        slip of the pen must not look as if all were well."""
        if named is None:
            return None
        url = self._given_store(named).url
        if not self._catalog.recovery.has_store(url):
            raise NotFound(f"the catalog has no chunk in the store {url}", hint="cafcat chunks ls shows them")
        return url

    def join(self, store: Store, *, join_store: bool = False, dry_run: bool = False) -> None:
        """Make this catalog one of those that write into a store, before its first chunk there: `cafcat ingest`
        and every other verb that writes chunks or backups does so.

        Args:
            store: where chunks are going to be written.
            join_store: the user wants two catalogs to write there.
            dry_run: check only, write nothing.

        Raises:
            Conflict: the store has chunks of another catalog, and join_store is false.
            Locked: another catalog joined at the same moment.
            StoreFailed, AccessDenied: the store does not answer, or is not the one that the catalog means.
            CatalogUnavailable, CatalogOutdated: the database does not answer, or has another schema.
        """
        self._joining().join(store, asked=join_store, dry_run=dry_run)

    def _joining(self) -> "Joining":
        from cafcat.operations.joining import Joining

        if self._settings.database_url is None:
            database = self._settings.home.as_uri()
        else:
            database = self._catalog.identities.database()
        return Joining(self._catalog, self._store_of, database)

    def _opening(self, options: "SourceOptions", progress: Progress) -> "Opening":
        return opening_of(self._settings, self._catalog, self._default_store(), options, progress)


def never() -> bool:
    return False


def ignore(_: object) -> None:
    """Nobody wants to know."""

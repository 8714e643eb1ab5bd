"""What all of custody has: a catalog, its stores, their settings."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cafcat.catalog.catalog import Catalog
from cafcat.errors import NotFound
from cafcat.progress import Progress
from cafcat.settings import Settings
from cafcat.stores.base import Store
from cafcat.wiring import opening_of

if TYPE_CHECKING:
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
        """The store that somebody named: by a name in the configuration, a URL, or a folder."""
        from cafcat.settings_stores import chosen_url
        from cafcat.settings_values import Given

        url = chosen_url(Given(given, "argument", Path.cwd()), "store", self._settings.stores)
        return self._store_of(url)

    def _store_with_chunks(self, named: str | None) -> str | None:
        """The URL of a store that somebody named; None for all. Raises NotFound if the catalog has nothing there: a
        slip of the pen must not look as if all were well."""
        if named is None:
            return None
        url = self._store_of(named).url
        if not self._catalog.recovery.has_store(url):
            raise NotFound(f"the catalog has no chunk in the store {url}", hint="cafcat chunks ls shows them")
        return url

    def _opening(self, options: "SourceOptions", progress: Progress) -> "Opening":
        store = self._store_of(self._settings.store)
        return opening_of(self._settings, self._catalog, store, options, progress)


def never() -> bool:
    return False


def ignore(_: object) -> None:
    """Nobody wants to know."""

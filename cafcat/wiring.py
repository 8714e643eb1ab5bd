"""What the settings say becomes stores and sources."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cafcat.catalog.catalog import Catalog
from cafcat.database import Database
from cafcat.progress import Progress
from cafcat.settings import Settings
from cafcat.stores.base import KeepsOpen, Store
from cafcat.stores.registry import open_store

if TYPE_CHECKING:
    from cafcat.scanning.opening import Opening, SourceOptions

__all__ = ["Rooms", "Stores", "opening_of", "stores_of"]


class Stores:
    """Gives the store of a URL in `chunks.store`, each opened once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stores: dict[str, Store] = {}

    def __call__(self, url: str) -> Store:
        store = self._stores.get(url)
        if store is None:
            opened = open_store(url, self._settings.access(url), self._settings.upload_memory)
            store = self._stores.setdefault(url, opened)  # another thread may have been faster
        return store

    def close(self) -> None:
        """Closes what stores keep open. Idempotent; they can still be used."""
        for store in list(self._stores.values()):
            if isinstance(store, KeepsOpen):
                store.close()


def stores_of(settings: Settings) -> Stores:
    """The stores that the settings tell how to reach."""
    return Stores(settings)


def opening_of(
    settings: Settings, catalog: Catalog, store: Store, options: "SourceOptions", progress: Progress
) -> "Opening":
    """How sources are opened; what cafcat itself keeps, in its home and in the store, is none."""
    from cafcat.scanning.opening import Opening

    own_folders = [str(settings.home / name) for name in ("postgres", "chunks")]
    return Opening(
        options,
        catalog.listings,
        settings.access,
        progress.warn,
        own_folders=[*own_folders, getattr(store, "folder", "")],
        own_urls=[store.url],
    )


@dataclass(frozen=True, slots=True)
class Rooms:
    """Opens catalog and stores anew, in another process."""

    settings: Settings

    def __call__(self) -> tuple[Catalog, Callable[[str], Store]]:
        return Database(self.settings).catalog(), stores_of(self.settings)

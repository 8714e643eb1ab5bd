"""What the settings say becomes stores and sources."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from cafcat.catalog.catalog import Catalog
from cafcat.database import Database
from cafcat.progress import Progress
from cafcat.settings import Settings
from cafcat.stores.base import Store
from cafcat.stores.registry import open_store

if TYPE_CHECKING:
    from cafcat.scanning.opening import Opening, SourceOptions

__all__ = ["Rooms", "opening_of", "stores_of"]


def stores_of(settings: Settings) -> Callable[[str], Store]:
    """Gives the store of a URL in `chunks.store`, each opened once."""

    @cache
    def store_of(url: str) -> Store:
        return open_store(url, settings.access(url), settings.upload_memory)

    return store_of


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

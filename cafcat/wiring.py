"""What the settings say becomes stores and sources."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cafcat.progress import Progress
from cafcat.settings import Settings
from cafcat.stores.base import KeepsOpen, Store
from cafcat.stores.registry import open_store

if TYPE_CHECKING:
    from cafcat.catalog.catalog import Catalog
    from cafcat.scanning.opening import Opening, SourceOptions

__all__ = ["Rooms", "Stores", "opening_of"]


class Stores(dict[str, Store]):
    """Stores by their URL in `chunks.store`, each opened when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    def __missing__(self, url: str) -> Store:
        store = open_store(url, self._settings.access(url), self._settings.upload_memory)
        return self.setdefault(url, store)  # another thread may have been faster

    def close(self) -> None:
        """Closes what stores keep open. Idempotent; they can still be used."""
        for store in list(self.values()):
            if isinstance(store, KeepsOpen):
                store.close()


def opening_of(
    settings: Settings, catalog: "Catalog", store: Store, options: "SourceOptions", progress: Progress
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

    def __call__(self) -> "tuple[Catalog, Callable[[str], Store]]":
        from cafcat.database import Database

        return Database(self.settings).catalog(), Stores(self.settings).__getitem__

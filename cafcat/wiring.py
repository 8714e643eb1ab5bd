"""What the settings say becomes stores and sources."""

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cafcat.errors import CafcatError
from cafcat.progress import Progress
from cafcat.settings.settings import Settings, default_home
from cafcat.stores.base import KeepsOpen, Store
from cafcat.stores.registry import open_store
from cafcat.support.private import PRIVATE_FILE, close_home, close_to_others, is_below

if TYPE_CHECKING:
    from cafcat.catalog.catalog import Catalog
    from cafcat.reading.outputs import Output
    from cafcat.scanning.opening import Opening, SourceOptions
    from cafcat.stores.s3.server_checks import ServerChecks, Verdicts

__all__ = ["CatalogVerdicts", "Rooms", "Stores", "opening_of", "output_of", "outputs_of"]


class Stores(dict[str, Store]):
    """Stores by their URL in `chunks.store`, each opened when it is first asked for."""

    def __init__(
        self,
        settings: Settings,
        verdicts: "Verdicts | None" = None,
        warn: Callable[[str], object] | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            settings: How stores are reached.
            verdicts: Where failed checks of S3 servers are remembered.
            warn: Called with a message about each check that a server newly fails. The default logs it.
        """
        super().__init__()
        self._settings = settings
        self._verdicts = verdicts
        self._warn = warn

    def _checks(self, url: str) -> "ServerChecks":
        from cafcat.stores.s3.server_checks import ServerChecks

        return ServerChecks(url, self._verdicts, self._warn)

    def __missing__(self, url: str) -> Store:
        settings, private = self._settings, self._settings.home / "chunks"
        store = open_store(
            url,
            settings.access(url),
            settings.upload_memory,
            private_folder=private,
            checks=self._checks,
        )
        if getattr(store, "folder", None) == str(private):  # an earlier version made it as the umask said
            close_home(settings.home, is_default=settings.has_default_home)
            close_to_others(private)
        return self.setdefault(url, store)  # another thread may have been faster

    def close(self) -> None:
        """Closes what stores keep open. Idempotent; they can still be used."""
        for store in list(self.values()):
            if isinstance(store, KeepsOpen):
                store.close()


@dataclass(frozen=True, slots=True)
class CatalogVerdicts:
    """Checks that servers failed, as the catalog of these settings has them.

    Each question takes a connection of its own, because verdicts are found inside transactions. If the catalog does
    not answer, nothing is known: then an object is read back once more, and a warning comes once more.
    """

    settings: Settings

    def failed(self, store_url: str) -> Collection[str]:
        """See Verdicts."""
        try:
            with closing(self._catalog()) as catalog:
                return catalog.verdicts.failed(store_url)
        except CafcatError:
            return []

    def remember(self, store_url: str, check: str) -> bool:
        """See Verdicts."""
        try:
            with closing(self._catalog()) as catalog:
                return catalog.verdicts.remember(store_url, check)
        except CafcatError:
            return True

    def _catalog(self) -> "Catalog":
        from cafcat.settings.database import Database

        return Database(self.settings).catalog()


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


def output_of(settings: Settings | None, path: str | os.PathLike[str], *, overwrite: bool) -> "Output":
    """Return a file or folder to write. In the default home of this user, files are closed to other users.

    Args:
        settings: Those of the repository; None where no repository is opened.
        path: Name of the file or folder.
        overwrite: Replace files that are there.
    """
    from cafcat.reading.outputs import Output

    home = default_home() if settings is None else settings.home
    is_private = (settings is None or settings.has_default_home) and is_below(path, home)
    return Output(Path(path), overwrite, PRIVATE_FILE) if is_private else Output(Path(path), overwrite)


def outputs_of(
    settings: Settings, paths: Mapping[str, str | os.PathLike[str]], *, overwrite: bool
) -> "dict[str, Output]":
    """The same for many, by key. If one of them is in the default home, all are closed to other users."""
    outputs = {key: output_of(settings, path, overwrite=overwrite) for key, path in paths.items()}
    mode = min((output.mode for output in outputs.values()), default=0)
    return {key: replace(output, mode=mode) for key, output in outputs.items()}


@dataclass(frozen=True, slots=True)
class Rooms:
    """Opens catalog and stores anew, in another process."""

    settings: Settings

    def __call__(self) -> "tuple[Catalog, Callable[[str], Store]]":
        from cafcat.settings.database import Database

        return Database(self.settings).catalog(), Stores(self.settings, CatalogVerdicts(self.settings)).__getitem__

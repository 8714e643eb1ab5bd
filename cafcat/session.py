"""The session: the first argument of every operation."""

import os
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cafcat.errors import CafcatError
from cafcat.events import Event
from cafcat.progress import Progress
from cafcat.settings.settings import Settings, default_home
from cafcat.stores.base import ClosableStore, FolderStore, Store
from cafcat.stores.registry import open_store
from cafcat.support.private import PRIVATE_FILE, close_home, close_to_others, is_below

if TYPE_CHECKING:
    from cafcat.catalog.catalog import Catalog
    from cafcat.reading.outputs import Output
    from cafcat.stores.kind import Verdicts

__all__ = ["CatalogVerdicts", "Session", "SessionFactory", "Stores", "output_of"]


class Stores(dict[str, Store]):
    """Stores by their URL in `chunks.store`. A store is opened at the first look-up."""

    def __init__(
        self,
        settings: Settings,
        verdicts: "Verdicts | None" = None,
        warnings: Progress | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            settings: How stores are reached.
            verdicts: Where failed checks of S3 servers are remembered.
            warnings: Receives a warning about each check that a server newly fails. The default logs it.
        """
        super().__init__()
        self._settings = settings
        self._verdicts = verdicts
        self._warnings = warnings

    def __missing__(self, url: str) -> Store:
        settings = self._settings
        warn = None if self._warnings is None else self._warnings.warn
        context = replace(settings.store_context(url), verdicts=self._verdicts, warn=warn)
        store = open_store(url, context)
        # Earlier versions created the private folders with the umask's mode.
        if isinstance(store, FolderStore) and store.folder == context.private_folder:
            close_home(settings.home, is_default=settings.has_default_home)
            close_to_others(Path(store.folder))
        return self.setdefault(url, store)  # another thread may have been faster

    def close(self) -> None:
        """Close the files that stores keep open. Stores can still be used. Idempotent."""
        for store in list(self.values()):
            if isinstance(store, ClosableStore):
                store.close()


@dataclass(frozen=True, slots=True)
class CatalogVerdicts:
    """Checks that S3 servers failed, as stored in the catalog of these settings.

    Each call opens its own connection, because stores call this inside transactions. If the catalog does not
    answer, no verdict is found: then an object is read back once more, and a warning is repeated.
    """

    settings: Settings

    def failed(self, store_url: str) -> Collection[str]:
        """Return the checks that a store failed. See Verdicts."""
        try:
            with closing(self._catalog()) as catalog:
                return catalog.verdicts.failed(store_url)
        except CafcatError:
            return []

    def remember(self, store_url: str, check: str) -> bool:
        """Store a failed check. Returns True if it is new. See Verdicts."""
        try:
            with closing(self._catalog()) as catalog:
                return catalog.verdicts.remember(store_url, check)
        except CafcatError:
            return True

    def _catalog(self) -> "Catalog":
        from cafcat.settings.database import Database

        return Database(self.settings).catalog()


@dataclass(slots=True)
class Session:
    """Catalog, stores and settings of a repository, with a way to report progress and to stop.

    Every operation gets a session as its first argument.

    Attributes:
        settings: Settings of the repository.
        catalog: The catalog. It connects at the first statement.
        stores: Stores by their URL.
        progress: Receives progress and events, and can stop the operation.
    """

    settings: Settings
    catalog: "Catalog"
    stores: Stores
    progress: Progress

    @classmethod
    def open(cls, settings: Settings, progress: Progress, warnings: Progress | None = None) -> "Session":
        """Return a session. It connects, and opens stores, when they are first used.

        Args:
            settings: Settings of the repository.
            progress: Receives progress and events, and can stop the operation.
            warnings: Receives warnings of the catalog and the stores.
        """
        from cafcat.settings.database import Database

        catalog = Database(settings).catalog()
        if warnings is not None:
            catalog.announce_waits(warnings)
        return cls(settings, catalog, Stores(settings, CatalogVerdicts(settings), warnings), progress)

    @property
    def stopping(self) -> bool:
        """True if the operation is to finish the object at hand, commit it, and return."""
        return self.progress.stopping

    def checkpoint(self) -> None:
        """Raise if the user wants the operation to end at once. Called between blocks, files and objects."""
        self.progress.checkpoint()

    def should_end(self) -> bool:
        """Call `checkpoint`, then return `stopping`. Loops call this between two objects."""
        self.progress.checkpoint()
        return self.progress.stopping

    def emit(self, event: Event) -> None:
        """Report an event."""
        self.progress.emit(event)

    def warn(self, message: str) -> None:
        """Report a warning."""
        self.progress.warn(message)

    def outputs(self, paths: Mapping[str, str | os.PathLike[str]], *, overwrite: bool) -> "dict[str, Output]":
        """Return several files to write, by key. If one of them is in the default home, all are private."""
        outputs = {key: output_of(self.settings, path, overwrite=overwrite) for key, path in paths.items()}
        mode = min((output.mode for output in outputs.values()), default=0)
        return {key: replace(output, mode=mode) for key, output in outputs.items()}

    def close(self) -> None:
        """Close the connection to the catalog, and the files that stores keep open. Idempotent."""
        self.catalog.close()
        self.stores.close()


@dataclass(frozen=True, slots=True)
class SessionFactory:
    """Opens a session in another process. Picklable."""

    settings: Settings

    def __call__(self, progress: Progress) -> Session:
        """Return a new session with a connection of its own."""
        return Session.open(self.settings, progress)


def output_of(settings: Settings | None, path: str | os.PathLike[str], *, overwrite: bool) -> "Output":
    """Return a file or folder to write. In the default home, new files are private to the user.

    Args:
        settings: Settings of the repository; None if no repository is opened.
        path: Name of the file or folder.
        overwrite: Replace existing files.
    """
    from cafcat.reading.outputs import Output

    home = default_home() if settings is None else settings.home
    is_private = (settings is None or settings.has_default_home) and is_below(path, home)
    return Output(Path(path), overwrite, PRIVATE_FILE) if is_private else Output(Path(path), overwrite)

"""The session: catalog, stores, settings and Progress of a repository, the first argument of most operations."""

import os
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cafcat.errors import CafcatError
from cafcat.progress import Pause, Progress
from cafcat.settings.settings import Settings, default_home
from cafcat.stores.base import ClosableStore, FolderStore, Store
from cafcat.stores.registry import open_store
from cafcat.support.private import PRIVATE_FILE, close_home, close_to_others, is_below

if TYPE_CHECKING:
    from cafcat.catalog.catalog import Catalog
    from cafcat.events import Event
    from cafcat.reading.outputs import Output
    from cafcat.reading.reader import FileReader
    from cafcat.stores.kind import Verdicts

__all__ = ["CatalogVerdicts", "Session", "SessionFactory", "Stores", "output_of"]


class Stores(dict[str, Store]):
    """Stores by their URL, as in the column `chunks.store`. The first look-up of a URL opens the store."""

    def __init__(
        self,
        settings: Settings,
        verdicts: "Verdicts | None" = None,
        warnings: Progress | None = None,
    ) -> None:
        """Create a mapping without open stores.

        Args:
            settings: Settings, with the named stores and the options of stores.
            verdicts: Remembers the checks that S3 servers failed. None: only this process remembers them.
            warnings: Receives a warning about each check that a server newly fails. None: the warning is logged.
        """
        super().__init__()
        self._settings = settings
        self._verdicts = verdicts
        self._warnings = warnings

    def __missing__(self, url: str) -> Store:
        settings = self._settings
        warn = None if self._warnings is None else self._warnings.warn
        context = settings.store_context(url)._replace(verdicts=self._verdicts, warn=warn)
        store = open_store(url, context)
        # Earlier versions created the private folders with the umask's mode.
        if isinstance(store, FolderStore) and store.folder == context.private_folder:
            close_home(settings.home, is_default=settings.has_default_home)
            close_to_others(Path(store.folder))
        return self.setdefault(url, store)  # another thread may have been faster

    def close(self) -> None:
        """Close the files that stores keep open. Idempotent. The stores can still be used."""
        for store in list(self.values()):
            if isinstance(store, ClosableStore):
                store.close()


class CatalogVerdicts(NamedTuple):
    """Remembers in the catalog which checks S3 servers failed.

    Each call opens its own connection, because stores call these methods inside transactions. If the catalog does
    not answer, nothing is remembered: then an object is read back once more, or a warning is repeated.

    Attributes:
        settings: Settings of the catalog.
    """

    settings: Settings

    def failed(self, store_url: str) -> Collection[str]:
        """Return the names of the checks that the server of a store failed; none if the catalog does not answer."""
        try:
            with closing(self._catalog()) as catalog:
                return catalog.verdicts.failed(store_url)
        except CafcatError:
            return []

    def remember(self, store_url: str, check: str) -> bool:
        """Store in the catalog that the server of a store failed a check.

        Returns:
            False if the catalog had this already. True if it is new, or the catalog does not answer.
        """
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
    """Catalog, stores, settings and Progress of a repository: the first argument of most operations.

    Attributes:
        settings: Settings of the repository.
        catalog: The catalog. It connects at the first statement.
        stores: Stores by their URL. Each is opened when it is used first.
        progress: Receives the progress and events of the operation, and can stop it.
        pause: Is set while the run of the operation is paused.
    """

    settings: Settings
    catalog: "Catalog"
    stores: Stores
    progress: Progress
    pause: Pause = field(default_factory=Pause)

    @classmethod
    def open(cls, settings: Settings, progress: Progress, warnings: Progress | None = None) -> "Session":
        """Return a new session. The first statement connects to the catalog; the first use of a store opens it.

        Args:
            settings: Settings of the repository.
            progress: Receives the progress and events of operations, and can stop them.
            warnings: Receives warnings about long waits for locks, and about servers of stores. None: the waits are
                not reported, and the warnings about servers are logged.

        Raises:
            NotInstalled: The setting `tracing` is on, and OpenTelemetry is missing.
        """
        from cafcat.settings.database import Database

        if settings.tracing:
            from cafcat.support.tracing import enable

            enable()
        catalog = Database(settings).catalog()
        if warnings is not None:
            catalog.announce_waits(warnings)
        return cls(settings, catalog, Stores(settings, CatalogVerdicts(settings), warnings), progress)

    @property
    def stopping(self) -> bool:
        """True if the operation is to finish the chunk or file that it is writing, commit it, and return."""
        return self.progress.stopping

    def checkpoint(self) -> None:
        """Raise an exception, usually KeyboardInterrupt, if the operation is to end at once.

        Operations call this between blocks, files and objects.
        """
        self.progress.checkpoint()

    def should_end(self) -> bool:
        """Return True if the operation is to begin no further object. Raises what `checkpoint` raises.

        Loops of operations call this between two objects. While the run is paused, this waits.
        """
        self.progress.checkpoint()
        if self.pause.is_paused:
            self.pause.wait(self._is_ending)
        return self.progress.stopping

    def _is_ending(self) -> bool:
        self.progress.checkpoint()
        return self.progress.stopping

    def emit(self, event: "Event") -> None:
        """Pass an event of the operation to `progress`."""
        self.progress.emit(event)

    def warn(self, message: str) -> None:
        """Pass a warning to `progress`."""
        self.progress.warn(message)

    def reader(self, warnings: Progress) -> "FileReader":
        """Return a reader of the files of the catalog. With the setting `tracing`, its reads are spans.

        Args:
            warnings: Receives warnings that copies are read.

        Raises:
            NotInstalled: The setting is on, and OpenTelemetry is missing.
        """
        if self.settings.tracing:
            from cafcat.reading.traced import TracedReader

            return TracedReader(self.catalog.reading, self.stores, warnings)
        from cafcat.reading.reader import FileReader

        return FileReader(self.catalog.reading, self.stores, warnings)

    def outputs(self, paths: Mapping[str, str | os.PathLike[str]], *, overwrite: bool) -> "dict[str, Output]":
        """Return the Output of each of several files that are written together, under the keys of `paths`.

        If one of them is below the default home, only the user can read any of the new files.

        Args:
            paths: Name of each file to write.
            overwrite: True to replace existing files.
        """
        outputs = {key: output_of(self.settings, path, overwrite=overwrite) for key, path in paths.items()}
        mode = min((output.mode for output in outputs.values()), default=0)
        return {key: replace(output, mode=mode) for key, output in outputs.items()}

    def close(self) -> None:
        """Close the connection to the catalog, and the files that stores keep open; send spans. Idempotent."""
        self.catalog.close()
        self.stores.close()
        if self.settings.tracing:
            from cafcat.support.tracing import flush

            flush()


class SessionFactory(NamedTuple):
    """Opens a session in another process. Unlike a session, it can be pickled.

    Attributes:
        settings: Settings of the repository.
    """

    settings: Settings

    def __call__(self, progress: Progress) -> Session:
        """Return a new session with a connection of its own, whose operations report to `progress`."""
        return Session.open(self.settings, progress)


def output_of(settings: Settings | None, path: str | os.PathLike[str], *, overwrite: bool) -> "Output":
    """Return the Output for a file or folder. Below the default home, only the user can read the new files.

    Args:
        settings: Settings of the repository; None if no repository is opened.
        path: Name of the file or folder to write.
        overwrite: True to replace existing files.
    """
    from cafcat.reading.outputs import Output

    home = default_home() if settings is None else settings.home
    is_private = (settings is None or settings.has_default_home) and is_below(path, home)
    return Output(Path(path), overwrite, PRIVATE_FILE) if is_private else Output(Path(path), overwrite)

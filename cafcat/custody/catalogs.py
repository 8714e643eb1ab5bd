"""The catalog itself: made again from the stores, compared, kept beside the chunks."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cafcat.catalog.chunks.owners import owner_name
from cafcat.custody.base import Keeper, ignore
from cafcat.errors import AccessDenied, CafcatError, InvalidInput, NotFound, StoreFailed, Unsupported
from cafcat.progress import Progress

if TYPE_CHECKING:
    from cafcat.operations.backup.run import BackupReport, FoundBackup
    from cafcat.operations.compare.run import CompareReport, Difference
    from cafcat.operations.rebuild.run import RebuildReport
    from cafcat.operations.restore.run import RestoreReport

__all__ = ["Catalogs"]


class Catalogs(Keeper):
    """rebuild, compare, backup, restore."""

    def lost_catalog(self) -> CafcatError | None:
        """Return an error that names the remedies if this catalog is empty, and the configured store is not: then
        it stands in for a lost one. The store is looked at only if the catalog is empty; one that does not answer
        counts as empty. Raises CatalogUnavailable, CatalogOutdated."""
        from cafcat.operations.joining import lost_catalog

        if not self._catalog.identities.is_empty():
            return None
        with suppress(AccessDenied, NotFound, StoreFailed, InvalidInput, Unsupported):
            return lost_catalog(self._catalog, self._default_store())
        return None

    def rebuild(
        self,
        stores: Sequence[str] = (),
        *,
        catalog: str | None = None,
        accept_loss: bool = False,
        progress: Progress | None = None,
    ) -> "RebuildReport":
        """Fills an empty catalog from stores alone: URLs, folders or names; without any, the configured one. Name
        all that the catalog had: of a chunk in several of them the first is the chunk, the others are copies. Reads
        the journal and the indexes of chunks, no data. One transaction: what ends early leaves the catalog empty.

        This catalog takes over the identity of the lost one. catalog: the uuid of the lost one, or its beginning,
        if several wrote to the stores; "unnamed" for one of an earlier version, which left no identity.

        What is missing or damaged is in the report. If anything is lost by that, nothing is written, unless
        accept_loss: then paths whose newest version is lost may point to the one before. Raises Conflict if the
        catalog is not empty, Locked if somebody writes to it, NotFound if the stores have nothing of cafcat's,
        CatalogUnavailable, CatalogOutdated, InvalidInput (also if several catalogs wrote to the stores, and none is
        chosen), StoreFailed and AccessDenied for a store that does not answer.
        """
        from cafcat.operations.rebuild.run import Rebuild

        found = [self._given_store(store) for store in stores] or [self._default_store()]
        distinct = list({store.url: store for store in found}.values())
        progress = progress or Progress()
        try:
            return Rebuild(self._catalog, distinct, lost=catalog, accept_loss=accept_loss, progress=progress).run()
        finally:
            progress.end()

    def compare(
        self,
        database_url: str,
        *,
        progress: Progress | None = None,
        on_difference: "Callable[[Difference], object] | None" = None,
    ) -> "CompareReport":
        """Compares with the catalog at another libpq URL: chunks, files, and what paths pointed to before. Entity
        tags of sources are not compared, nor what only one catalog can know: runs, events, times of commits.
        on_difference is told of each. Raises CatalogUnavailable, CatalogOutdated, InvalidInput, AccessDenied."""
        from cafcat.catalog.connection import connect
        from cafcat.catalog.transfer.comparing import Comparing
        from cafcat.operations.compare.run import compare_catalogs

        progress = progress or Progress()
        theirs = Comparing(lambda: connect(database_url))
        try:
            return compare_catalogs(self._catalog.comparing, theirs, progress, on_difference or ignore)
        finally:
            progress.end()

    def backup(
        self,
        to: str | None = None,
        *,
        keep: int | None = None,
        join_store: bool = False,
        progress: Progress | None = None,
    ) -> "BackupReport":
        """Writes the whole catalog, as it is at one moment, as an object of a store: a URL, folder or name; None
        for the configured one. keep: afterwards, so many backups stay there, the newest. join_store: as for
        `ingest`. Raises Conflict, InvalidInput, StoreFailed, AccessDenied, CatalogUnavailable, CatalogOutdated."""
        from importlib.metadata import version

        from cafcat.operations.backup.run import Backup

        if keep is not None and keep < 1:
            raise InvalidInput(f"at least one backup has to stay, not {keep}")
        store = self.store_to_write(to)
        self.join(store, join_store=join_store)
        progress = progress or Progress()
        backup = Backup(
            self._catalog, store, owner=owner_name("backup"), version=version("cafcat"), progress=progress
        )
        try:
            return backup.run(keep)
        finally:
            progress.end()

    def backups(self, store: str | None = None) -> "Sequence[FoundBackup]":
        """The backups that a store has, the oldest first; asks no catalog."""
        from cafcat.operations.backup.run import backups_of

        return backups_of(self._default_store() if store is None else self._given_store(store))

    def restore(
        self, name: str | None = None, *, source: str | None = None, progress: Progress | None = None
    ) -> "RestoreReport":
        """Fills an empty catalog from a backup: its key, or the beginning of it; None for the newest. source: the
        store that has it, None for the configured one. One transaction, committed only if all of it is as it was
        written. Raises NotFound, Conflict if the catalog is not empty, Locked if somebody writes to it, Corrupt,
        Unsupported, CatalogOutdated, CatalogUnavailable, InvalidInput, StoreFailed, AccessDenied."""
        from cafcat.operations.restore.run import Restore

        store = self._default_store() if source is None else self._given_store(source)
        progress = progress or Progress()
        try:
            return Restore(self._catalog, self._store_of, progress=progress).run(store, name)
        finally:
            progress.end()

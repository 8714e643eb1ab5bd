"""Custody of what was packed: proving it, mending it, removing it, keeping it twice. `Repository.custody` is it."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.owners import owner_name
from cafcat.database import Database
from cafcat.errors import CafcatError, InvalidInput, NotFound
from cafcat.model import VerifyLevel
from cafcat.progress import Progress
from cafcat.settings import Settings
from cafcat.stores.base import Store
from cafcat.stores.registry import open_store

if TYPE_CHECKING:
    from cafcat.catalog.rewriting import RewritableChunk
    from cafcat.maintenance.backup import BackupReport, FoundBackup
    from cafcat.maintenance.compare import CompareReport, Difference
    from cafcat.maintenance.copy import CopyReport, TakenChunk
    from cafcat.maintenance.left_copies import SettledCopy
    from cafcat.maintenance.prune import PrunedChunk, PruneReport
    from cafcat.maintenance.rebuild import RebuildReport
    from cafcat.maintenance.recover import Recover, RecoverReport, SettledChunk
    from cafcat.maintenance.remove import RemoveReport, Removing, UndeleteReport
    from cafcat.maintenance.repack import RepackReport
    from cafcat.maintenance.repair import RepairReport
    from cafcat.maintenance.restore import RestoreReport
    from cafcat.maintenance.verify import CheckedObject, VerifyReport
    from cafcat.model import RetiredLocation
    from cafcat.scanning.opening import Opening, SourceOptions
    from cafcat.writing.limits import Limits

__all__ = ["Custody"]

_Names = TypeVar("_Names", bound=Iterable[str])


class Custody:
    """One catalog and its stores, as their keeper sees them. Each method imports what only it needs."""

    def __init__(self, catalog: Catalog, store_of: Callable[[str], Store], settings: Settings) -> None:
        """`store_of` gives the store of a URL in `chunks.store`."""
        self._catalog = catalog
        self._store_of = store_of
        self._settings = settings

    def recover(
        self,
        *,
        store: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        on_settled: "Callable[[SettledChunk | SettledCopy], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "RecoverReport":
        """Settles what writers left behind that died: chunks whose object is whole are adopted, of all others
        nothing is left. Chunks that are being written are left alone.

        store: a URL or folder, only its chunks; otherwise those of all stores that the catalog names. dry_run:
        looks, changes nothing. on_settled is told of each chunk. When should_stop says True, which is asked between
        chunks, it ends; when it raises, the chunk at hand stays as it is.

        What a store refuses costs only its chunks and is reported. Raises CatalogUnavailable, CatalogOutdated,
        InvalidInput for a store that is none, NotFound for one without a chunk in the catalog.
        """
        progress = progress or Progress()
        only = None if store is None else self._store_of(store).url
        stores = [url for url in self._catalog.recovery.stores() if only in (None, url)]
        if only is not None and not stores:
            raise NotFound(f"the catalog has no chunk in the store {only}", hint="cafcat chunks ls shows them")
        recover = self._recovery(progress, on_settled, should_stop, dry_run=dry_run)
        progress.begin("recover")
        try:
            recover.take(stores)
        finally:
            progress.end()
        return recover.report

    def remove(
        self,
        paths: Iterable[str] = (),
        *,
        folders: Sequence[str] = (),
        dry_run: bool = False,
        progress: Progress | None = None,
        should_stop: Callable[[], object] | None = None,
    ) -> "RemoveReport":
        """Removes files from the catalog, all in one transaction: these paths, any number of them, and everything
        below these folders (a folder's name also means the file of that name; "." is everything). Their bytes stay
        where they are: undelete brings the files back, until prune removes a chunk that has no other files.

        dry_run: looks, changes nothing. Names that the catalog does not have are told to `progress` as problems and
        counted. should_stop may raise, up to the moment of the commit: then nothing has happened.

        Every store with chunks is told, so that a rebuild knows; one that cannot be told now is a warning, and
        recover tells it later. Raises InvalidInput, CatalogUnavailable (if it could not be done or nobody can
        tell), CatalogOutdated.
        """
        progress = progress or Progress()
        try:
            return self._removing(progress, should_stop).remove(_names(paths), _names(folders), dry_run=dry_run)
        finally:
            progress.end()

    def undelete(
        self,
        paths: Iterable[str] = (),
        *,
        folders: Sequence[str] = (),
        progress: Progress | None = None,
        should_stop: Callable[[], object] | None = None,
    ) -> "UndeleteReport":
        """Brings removed files back, as they were when they were removed last: these paths, and all that was
        removed below these folders; all in one transaction. A path that has a file again is left alone, and what
        was pruned is gone; both are problems, told to `progress` and counted. The rest as of remove."""
        progress = progress or Progress()
        try:
            return self._removing(progress, should_stop).undelete(_names(paths), _names(folders))
        finally:
            progress.end()

    def removed(self, prefix: str = "") -> "Iterator[RetiredLocation]":
        """The files below a folder (or of that name) that undelete can bring back, in path order."""
        return self._removing(Progress(), None).removed(prefix)

    def prune(
        self,
        *,
        grace_seconds: int | None = None,
        store: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        on_pruned: "Callable[[PrunedChunk], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "PruneReport":
        """Removes chunks, and all their copies, that no path points to since more than grace_seconds (default: 7
        days). What was removed of them cannot be undeleted any more. What an earlier prune did not come to is
        finished.

        store: a URL or folder, only its chunks. dry_run: looks, changes nothing. on_pruned is told of each chunk.
        When should_stop says True, which is asked between chunks, it ends.

        What a store refuses, or one that is not there, costs only its chunks and is reported. Raises
        CatalogUnavailable, CatalogOutdated, InvalidInput.
        """
        from cafcat.maintenance.known_stores import KnownStores
        from cafcat.maintenance.prune import DEFAULT_GRACE_SECONDS, Prune

        progress = progress or Progress()
        prune = Prune(
            self._catalog,
            KnownStores(self._catalog, self._store_of),
            grace_seconds=DEFAULT_GRACE_SECONDS if grace_seconds is None else grace_seconds,
            dry_run=dry_run,
            progress=progress,
            on_pruned=on_pruned or _ignore,
            should_stop=should_stop or _never,
        )
        progress.begin("prune")
        try:
            return prune.take(None if store is None else self._store_of(store).url)
        finally:
            progress.end()

    def _removing(self, progress: Progress, should_stop: Callable[[], object] | None) -> "Removing":
        from cafcat.maintenance.known_stores import KnownStores
        from cafcat.maintenance.remove import Removing

        return Removing(self._catalog, KnownStores(self._catalog, self._store_of), progress, should_stop or _never)

    def settle(self, store: str, progress: Progress, should_stop: Callable[[], bool]) -> None:
        """What an ingest does before it begins: what the catalog knows that dead writers left in a store is
        adopted or removed. That it cannot be is a warning: the ingest itself does not depend on it."""
        recover = self._recovery(progress, None, should_stop, dry_run=False)
        try:
            recover.settle(store)
        except CafcatError as error:
            progress.warn(f"what an earlier run left could not be settled: {error}")
            return
        report = recover.report
        for failed in report.failed:
            progress.warn(f"what an earlier run left could not be settled: {failed}")
        if report.adopted or report.abandoned:
            progress.warn(
                f"settled what an earlier run left: {report.adopted} chunks adopted "
                f"({report.files_adopted} files), {report.abandoned} abandoned"
            )

    def verify(
        self,
        sources: Sequence[str | os.PathLike[str]] = (),
        *,
        level: VerifyLevel | str = VerifyLevel.INDEX,
        chunks: Sequence[str] = (),
        prefix: str = "",
        store: str | None = None,
        older_than: int | None = None,
        sample: float | None = None,
        follow_symlinks: bool = False,
        unpack_tars: bool = True,
        restart: bool = False,
        jobs: int | None = None,
        progress: Progress | None = None,
        on_checked: "Callable[[CheckedObject], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "VerifyReport":
        """Checks what was packed, and keeps what it finds in the catalog (`verify_runs`, `verifications`,
        `findings`). Chunks, live or retired, and their copies.

        At level index and data, chunks: uuids, or their beginnings; prefix: only chunks that have, or had, a file
        below this folder of the catalog, or of that name; store: a URL or folder, only what is there; older_than:
        only what was not found whole in these last seconds, at that level or a higher one; sample: only this
        fraction of them, above 0 and up to 1. jobs: how many at once; None: one for each processor, if it is worth
        it. At level source: sources, prefix, follow_symlinks and unpack_tars as they were given to `ingest`.

        A verify that did not come to its end goes on when it is asked for again in the same way, unless restart.
        on_checked is told of each object when its result is in the catalog. When should_stop says True, which is
        asked between objects, it ends; when it raises, what is at hand is checked anew the next time.

        Damage is not an error: the report has it. Raises InvalidInput, NotFound for a chunk or source that is not
        there, CatalogUnavailable, CatalogOutdated; Unavailable if one of its processes died.
        """
        from cafcat.maintenance.verify import Verify, VerifyOptions

        options = VerifyOptions(
            level=VerifyLevel(level),
            sources=[os.fspath(source) for source in sources],
            chunks=chunks,
            prefix=prefix,
            store=None if store is None else self._store_of(store).url,
            older_than_seconds=older_than,
            sample=sample,
            follow_symlinks=follow_symlinks,
            unpack_tars=unpack_tars,
            restart=restart,
            jobs=jobs,
        )
        progress = progress or Progress()
        verify = Verify(
            self._catalog,
            self._store_of,
            rooms=_Rooms(self._settings),
            opening=lambda options: self._opening(options, progress),
            progress=progress,
            on_checked=on_checked or _ignore,
            should_stop=should_stop or _never,
        )
        try:
            return verify.run(options)
        finally:
            progress.end()

    def repack(
        self,
        *,
        chunks: Sequence[str] = (),
        max_unused: float = 0.2,
        small: int | None = None,
        max_repack_size: int | None = None,
        store: str | None = None,
        target_size: int | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        on_chosen: "Callable[[RewritableChunk], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "RepackReport":
        """Copies the live files of chunks with much dead space into new chunks of the same store; the old ones
        retire, and prune removes them.

        chunks: uuids, or their beginnings; otherwise those in which a larger share than max_unused (0 to 1) of the
        data is dead, the largest share first, and those of less than `small` bytes. max_repack_size: so many live
        bytes are copied at most. store: a URL or folder, only its chunks. target_size: bytes of a new chunk.
        dry_run: changes nothing. on_chosen is told of each chunk before. When should_stop says True, which is asked
        between files and blocks, what was packed is committed; when it raises, the open chunk is given up.

        A file that is damaged stays where it is and is told to `progress`; it is for repair. Raises NotFound,
        InvalidInput, StoreFailed, CatalogUnavailable, CatalogOutdated: chunks committed before stay.
        """
        from cafcat.maintenance.repack import Repack, RepackOptions

        progress, should_stop = progress or Progress(), should_stop or _never
        only = None if store is None else self._store_of(store).url
        limits = self._limits(target_size)
        repack = Repack(self._catalog, self._store_of, limits, progress=progress, should_stop=should_stop)
        if not dry_run:
            for url in self._catalog.recovery.stores() if only is None else [only]:
                self.settle(url, progress, should_stop)
        plan = repack.plan(RepackOptions(chunks, max_unused, small, max_repack_size, only))
        for chunk in plan.chunks:
            (on_chosen or _ignore)(chunk)
        try:
            return repack.take(plan, dry_run=dry_run)
        finally:
            progress.end()

    def repair(
        self,
        *,
        sources: Sequence[str | os.PathLike[str]] = (),
        from_copies: bool = False,
        chunks: Sequence[str] = (),
        prefix: str = "",
        follow_symlinks: bool = False,
        unpack_tars: bool = True,
        target_size: int | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "RepairReport":
        """Takes the live files of damaged chunks from wherever their right bytes still are, and packs them into new
        chunks of the repository's store: from the chunk itself; else, with from_copies, from its copies; else from
        the sources, with prefix, follow_symlinks and unpack_tars as they were given to `ingest`. Nothing is taken
        that has not the checksum in the catalog.

        chunks: uuids, or their beginnings; otherwise those that verify found to be damaged. dry_run: reads all,
        changes nothing. target_size, should_stop: as of repack.

        A file that nobody can give stays where it is and is told to `progress`. Raises NotFound, InvalidInput,
        StoreFailed, CatalogUnavailable, CatalogOutdated: chunks committed before stay.
        """
        from cafcat.maintenance.repair import Repair
        from cafcat.maintenance.rewrite import Rewriter, place_of
        from cafcat.scanning.opening import SourceOptions

        if not sources and not from_copies:
            raise InvalidInput(
                "a repair needs to know where right bytes may be", hint="name sources, or ask copies"
            )
        progress, should_stop = progress or Progress(), should_stop or _never
        store = self._store_of(self._settings.store)
        limits = self._limits(target_size)
        options = SourceOptions(
            prefix=prefix, follow_symlinks=follow_symlinks, unpack_tars=unpack_tars, restart_listing=True
        )
        opened = self._opening(options, progress).open(sources)
        if not dry_run:
            self.settle(store.url, progress, should_stop)
        place = place_of(self._catalog, store, "repair")
        repair = Repair(
            self._catalog,
            self._store_of,
            Rewriter(place, limits, progress=progress, should_stop=should_stop),
            from_copies=from_copies,
            sources=opened,
            sources_again="-" not in sources,
            dry_run=dry_run,
            progress=progress,
        )
        try:
            repair.take(repair.damaged(chunks))
        finally:
            progress.end()
        return repair.report

    def _limits(self, target_size: int | None) -> "Limits":
        from cafcat.writing.limits import Limits

        limits = Limits(self._settings.target_size if target_size is None else target_size)
        limits.check()
        return limits

    def _opening(self, options: "SourceOptions", progress: Progress) -> "Opening":
        from cafcat.scanning.opening import Opening

        store = self._store_of(self._settings.store)
        own_folders = [str(self._settings.home / name) for name in ("postgres", "chunks")]
        return Opening(
            options,
            self._catalog.listings,
            self._settings.access,
            progress.warn,
            own_folders=[*own_folders, getattr(store, "folder", "")],
            own_urls=[store.url],
        )

    def copy(
        self,
        chunks: Sequence[str] = (),
        *,
        to: str,
        prefix: str | None = None,
        progress: Progress | None = None,
        on_taken: "Callable[[TakenChunk], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "CopyReport":
        """Copies chunks bit by bit into another store: a URL, folder or name. Reads go there by themselves when a
        chunk's own object fails, and repair takes right bytes from there. With each goes what the journal says, so
        that a rebuild from the copies alone works. What is there already is left alone.

        chunks: uuids, or their beginnings; otherwise all that are committed, or those with files below `prefix`, a
        folder of the catalog (or of that name). on_taken is told of each chunk. When should_stop says True, which
        is asked between chunks, it ends; when it raises, nothing is left of the copy at hand.

        A chunk that is damaged, or cannot be read, costs only itself and is reported. Raises NotFound,
        InvalidInput, StoreFailed and AccessDenied if `to` does not take the copy, CatalogUnavailable,
        CatalogOutdated: what was copied before stays.
        """
        from cafcat.maintenance.copy import CopyChunks, selection_of
        from cafcat.maintenance.known_stores import KnownStores

        progress, should_stop = progress or Progress(), should_stop or _never
        target = KnownStores(self._catalog, self._store_of).open(self._given_store(to).url)
        selection = selection_of(self._catalog, _names(chunks), prefix, target)
        self.settle(target.url, progress, should_stop)
        copy = CopyChunks(
            self._catalog,
            self._store_of,
            target,
            owner=owner_name("copy"),
            progress=progress,
            on_taken=on_taken or _ignore,
            should_stop=should_stop,
        )
        try:
            copy.take(selection)
        finally:
            progress.end()
        return copy.report

    def rebuild(
        self, stores: Sequence[str] = (), *, accept_loss: bool = False, progress: Progress | None = None
    ) -> "RebuildReport":
        """Fills an empty catalog from stores alone: URLs, folders or names; without any, the configured one. Name
        all that the catalog had: of a chunk in several of them the first is the chunk, the others are copies. Reads
        the journal and the indexes of chunks, no data. One transaction: what ends early leaves the catalog empty.

        What is missing or damaged is in the report. If anything is lost by that, nothing is written, unless
        accept_loss: then paths whose newest version is lost may point to the one before. Raises Conflict if the
        catalog is not empty, Locked if somebody writes to it, NotFound if the stores have nothing of cafcat's,
        CatalogUnavailable, CatalogOutdated, InvalidInput, StoreFailed and AccessDenied for a store that does not
        answer.
        """
        from cafcat.maintenance.rebuild import Rebuild

        found = [self._given_store(store) for store in stores] or [self._store_of(self._settings.store)]
        distinct = list({store.url: store for store in found}.values())
        progress = progress or Progress()
        try:
            return Rebuild(self._catalog, distinct, accept_loss=accept_loss, progress=progress).run()
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
        from cafcat.catalog.comparing import Comparing
        from cafcat.catalog.connection import connect
        from cafcat.maintenance.compare import compare_catalogs

        progress = progress or Progress()
        theirs = Comparing(lambda: connect(database_url))
        try:
            return compare_catalogs(self._catalog.comparing, theirs, progress, on_difference or _ignore)
        finally:
            progress.end()

    def backup(
        self, to: str | None = None, *, keep: int | None = None, progress: Progress | None = None
    ) -> "BackupReport":
        """Writes the whole catalog, as it is at one moment, as an object of a store: a URL, folder or name; None
        for the configured one. keep: afterwards, so many backups stay there, the newest. Raises InvalidInput,
        StoreFailed, AccessDenied, CatalogUnavailable, CatalogOutdated."""
        from importlib.metadata import version

        from cafcat.maintenance.backup import Backup

        if keep is not None and keep < 1:
            raise InvalidInput(f"at least one backup has to stay, not {keep}")
        store = self._given_store(to or self._settings.store)
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
        from cafcat.maintenance.backup import backups_of

        return backups_of(self._given_store(store or self._settings.store))

    def restore(
        self, name: str | None = None, *, source: str | None = None, progress: Progress | None = None
    ) -> "RestoreReport":
        """Fills an empty catalog from a backup: its key, or the beginning of it; None for the newest. source: the
        store that has it, None for the configured one. One transaction, committed only if all of it is as it was
        written. Raises NotFound, Conflict if the catalog is not empty, Locked if somebody writes to it, Corrupt,
        Unsupported, CatalogOutdated, CatalogUnavailable, InvalidInput, StoreFailed, AccessDenied."""
        from cafcat.maintenance.restore import Restore

        store = self._given_store(source or self._settings.store)
        progress = progress or Progress()
        try:
            return Restore(self._catalog, self._store_of, progress=progress).run(store, name)
        finally:
            progress.end()

    def _given_store(self, given: str) -> Store:
        """The store that somebody named: by a name in the configuration, a URL, or a folder."""
        from cafcat.settings_stores import chosen_url
        from cafcat.settings_values import Given

        url = chosen_url(Given(given, "argument", Path.cwd()), "store", self._settings.stores)
        return self._store_of(url)

    def _recovery(
        self,
        progress: Progress,
        on_settled: "Callable[[SettledChunk | SettledCopy], object] | None",
        should_stop: Callable[[], bool] | None,
        *,
        dry_run: bool,
    ) -> "Recover":
        from cafcat.maintenance.recover import Recover

        return Recover(
            self._catalog,
            self._store_of,
            owner=owner_name("recover"),
            dry_run=dry_run,
            progress=progress,
            on_settled=on_settled or _ignore,
            should_stop=should_stop or _never,
        )


def _names(names: _Names) -> _Names:
    if isinstance(names, str | bytes):
        raise InvalidInput("names are a list", hint=f"write [{names!r}]")
    return names


@dataclass(frozen=True, slots=True)
class _Rooms:
    """Opens catalog and stores anew, in another process."""

    settings: Settings

    def __call__(self) -> tuple[Catalog, Callable[[str], Store]]:
        settings = self.settings

        @cache
        def store_of(url: str) -> Store:
            return open_store(url, settings.access(url), settings.upload_memory)

        return Database(settings).catalog(), store_of


def _never() -> bool:
    return False


def _ignore(_: object) -> None:
    """Nobody wants to know."""

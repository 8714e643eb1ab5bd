"""Gives up a store that is lost for good: its chunks are read from their copies, and files without a copy go.

A file that `repack` or `repair` moved into a lost chunk goes back to its former chunk, if another store has that.

Each step is a transaction of its own, and the same command finishes what an interrupted one has left.
"""

from dataclasses import dataclass
from typing import Final

from cafcat.catalog.files.moving_back import FormerObject, MovedBack
from cafcat.catalog.files.path_list import VersionList
from cafcat.catalog.stores.losing import LostChunk
from cafcat.errors import CafcatError, CatalogOutdated, CatalogUnavailable, Conflict, StoreFailed
from cafcat.operations.reachable_stores import ReachableStores
from cafcat.operations.removing import Removing
from cafcat.operations.stores.rows import store_row
from cafcat.session import Session
from cafcat.stores.base import has

__all__ = ["StoreLossReport", "lose_store"]

_LOOKED_AT: Final = 100
"""Number of newest objects that are looked for in the store, to find out whether it is really lost."""


@dataclass(slots=True)
class StoreLossReport:
    """Totals of one `store rm --lost`. In a dry run: of the objects that would be given up.

    Attributes:
        store: URL of the store.
        chunks_kept: Number of its chunks with a copy in another store, from which they are read now.
        chunks_damaged: Number of these chunks whose only copies were found damaged.
        chunks_lost: Number of its other chunks.
        files_moved_back: Number of live files in the lost chunks that are read from copies of former chunks now,
            from which `repack` or `repair` had moved them.
        files_lost: Number of all other live files in the lost chunks. They were removed from the catalog.
        bytes_lost: Total size of these files.
        removed_files_lost: Number of removed files in the lost chunks. `undelete` cannot bring them back any more.
        old_versions_lost: Number of older versions of files in the lost chunks, which newer versions have replaced.
        copies_lost: Number of copies of other stores' chunks in the store.
        backups_lost: Number of backups in the store.
        dry_run: True if nothing was changed.
    """

    store: str
    chunks_kept: int = 0
    chunks_damaged: int = 0
    chunks_lost: int = 0
    files_moved_back: int = 0
    files_lost: int = 0
    bytes_lost: int = 0
    removed_files_lost: int = 0
    old_versions_lost: int = 0
    copies_lost: int = 0
    backups_lost: int = 0
    dry_run: bool = False


def lose_store(session: Session, store: str, *, dry_run: bool) -> StoreLossReport:
    """Give up a store whose objects are lost. The row of the store stays, because rows of its chunks refer to it.

    Args:
        session: The session.
        store: A store of the catalog: a name, a URL or a folder.
        dry_run: Only count.

    Raises:
        NotFound: The catalog has no such store.
        Conflict: The store still has an object of the catalog; or its rows changed meanwhile.
        AccessDenied: The store refuses the request, so that nobody can see whether it is lost.
        Locked: A command writes to the store.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    url = store_row(session, store).url
    _check_lost(session, url)
    loss = _Loss(session, url, dry_run=dry_run)
    loss.run()
    return loss.report


class _Loss:
    """State and steps of one `cafcat store rm --lost`.

    Attributes:
        report: Totals so far.
    """

    def __init__(self, session: Session, url: str, *, dry_run: bool) -> None:
        self._session = session
        self._catalog = session.catalog
        self._removing = Removing(session)
        self._stores = ReachableStores(session)
        self._lost: set[int] = set()
        copies, backups = session.catalog.losing.copies_and_backups(url)
        self.report = StoreLossReport(url, copies_lost=copies, backups_lost=backups, dry_run=dry_run)

    def run(self) -> None:
        report = self.report
        with VersionList() as versions:
            for chunk in self._switch_to_copies():
                self._session.checkpoint()
                self._count_lost(chunk, self._move_back(chunk))
                if not report.dry_run:
                    self._catalog.losing.add_versions(chunk.id, versions)
            if not report.dry_run:
                self._removing.remove_versions(versions, None, lost_store=report.store)
                self._catalog.losing.end(report.store)
                self._removing.record_stores()  # without the lost one, which a rebuild would ask for
                self._session.stores.close()  # a new store may be made at the same place
                self._catalog.folders.fold()

    def _switch_to_copies(self) -> list[LostChunk]:
        """Let the chunks of the lost store with copies elsewhere be read from these. Return the other chunks."""
        lost = []
        for chunk in self._catalog.losing.chunks(self.report.store):
            self._session.checkpoint()
            if chunk.copy_store is None:
                lost.append(chunk)
                self._lost.add(chunk.id)
                continue
            self.report.chunks_kept += 1
            self.report.chunks_damaged += chunk.is_damaged
            if not self.report.dry_run:
                self._catalog.copies.switch(chunk.uuid, self.report.store, chunk.copy_store, is_unchecked=True)
        return lost

    def _move_back(self, chunk: LostChunk) -> MovedBack:
        """Return live files of a lost chunk to former chunks that another store has. In a dry run, count them."""
        lost_store, moving_back = self.report.store, self._catalog.moving_back
        objects = [former for former in moving_back.objects(chunk.id, lost_store) if self._is_there(former)]
        if self.report.dry_run:
            return moving_back.count(chunk.id, objects)
        moved = moving_back.move_back(chunk.id, objects)
        self._removing.write_records(url for url in moved.stores if url != lost_store)
        return moved

    def _is_there(self, former: FormerObject) -> bool:
        """Return False if a chunk is lost, too, or a store does not have an object, such as a deleted archive.

        A store out of reach is taken to have its objects, except adopted archives: their folder may be gone, too.
        """
        if former.chunk_id in self._lost:
            return False
        try:
            if former.is_adopted:
                return has(self._session.stores[former.store], former.object_key)
            return has(self._stores.open(former.store), former.object_key)
        except (CatalogUnavailable, CatalogOutdated):
            raise
        except CafcatError:
            return not former.is_adopted

    def _count_lost(self, chunk: LostChunk, moved: MovedBack) -> None:
        self.report.chunks_lost += 1
        self.report.files_moved_back += moved.files
        self.report.files_lost += chunk.files - moved.files
        self.report.bytes_lost += chunk.bytes - moved.bytes
        self.report.removed_files_lost += chunk.removed_files
        self.report.old_versions_lost += chunk.old_versions


def _check_lost(session: Session, url: str) -> None:
    """Raise Conflict if the store has one of its newest objects. A store that does not answer may be lost."""
    opened = session.stores[url]
    try:
        found = next((key for key in session.catalog.recovery.newest(url, _LOOKED_AT) if has(opened, key)), None)
    except StoreFailed:
        return
    if found is not None:
        hint = (
            "`cafcat store migrate` moves the objects to another store; to give up a store that only has copies, "
            "delete its objects first, for example with rm -r"
        )
        raise Conflict(f"the store is not lost: it still has {opened.locate(found)}", hint=hint)

"""Gives up a store that is lost for good: its chunks are read from their copies, and files without a copy go.

A file that `repack` or `repair` moved into a lost chunk goes back to its former chunk, if another store has that.

Each step is a transaction of its own, and the same command finishes what an interrupted one has left.
"""

from dataclasses import dataclass
from typing import Final

from cafcat.catalog.files.moving_back import MovedBack
from cafcat.catalog.files.path_list import VersionList
from cafcat.catalog.stores.losing import LostChunk
from cafcat.errors import Conflict, StoreFailed
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
    losing = session.catalog.losing
    copies, backups = losing.copies_and_backups(url)
    report = StoreLossReport(url, copies_lost=copies, backups_lost=backups, dry_run=dry_run)
    lost = _switch_to_copies(session, report)
    removing = Removing(session)
    with VersionList() as versions:
        for chunk in lost:
            session.checkpoint()
            _count_lost(chunk, _move_back(session, removing, chunk, report), report)
            if not dry_run:
                losing.add_versions(chunk.id, versions)
        if not dry_run:
            removing.remove_versions(versions, None, lost_store=url)
            losing.end(url)
            removing.record_stores()  # without the lost one, which a rebuild would ask for
            session.stores.close()  # a new store may be made at the same place
            session.catalog.folders.fold()
    return report


def _switch_to_copies(session: Session, report: StoreLossReport) -> list[LostChunk]:
    """Let all chunks of a lost store that have copies elsewhere be read from these. Return the other chunks."""
    lost = []
    for chunk in session.catalog.losing.chunks(report.store):
        session.checkpoint()
        if chunk.copy_store is None:
            lost.append(chunk)
            continue
        report.chunks_kept += 1
        report.chunks_damaged += chunk.is_damaged
        if not report.dry_run:
            session.catalog.copies.switch(chunk.uuid, report.store, chunk.copy_store, is_unchecked=True)
    return lost


def _move_back(session: Session, removing: Removing, chunk: LostChunk, report: StoreLossReport) -> MovedBack:
    """Return live files of a lost chunk to former chunks that another store has. In a dry run, only count them."""
    moving_back = session.catalog.moving_back
    moved = (moving_back.count if report.dry_run else moving_back.move_back)(chunk.id, report.store)
    removing.write_records(moved.stores)
    return moved


def _count_lost(chunk: LostChunk, moved: MovedBack, report: StoreLossReport) -> None:
    report.chunks_lost += 1
    report.files_moved_back += moved.files
    report.files_lost += chunk.files - moved.files
    report.bytes_lost += chunk.bytes - moved.bytes
    report.removed_files_lost += chunk.removed_files
    report.old_versions_lost += chunk.old_versions


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

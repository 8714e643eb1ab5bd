"""Migrates the chunks of a store on the workers of an executor."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple
from uuid import UUID

from cafcat.catalog.chunks.copies import ChunkToCopy, Selection
from cafcat.catalog.chunks.owners import owner_name
from cafcat.operations.cluster_calls import ClusterCalls
from cafcat.operations.copy.cluster import clear_leftovers, copy_weight
from cafcat.operations.copy.run import ChunkCopier
from cafcat.operations.reachable_stores import ReachableStores, reachable_of
from cafcat.operations.stores.migrate import MigrateReport, Migration
from cafcat.session import Session
from cafcat.stores.base import Store

__all__ = ["ChunksToMigrate", "migrate_chunks", "migrate_on_cluster"]


class ChunksToMigrate(NamedTuple):
    """The chunks that one call migrates, and the URLs of the old and the new store."""

    uuids: Sequence[UUID]
    old: str
    new: str


def migrate_on_cluster(session: Session, calls: ClusterCalls, migration: Migration, old: Store, new: Store) -> None:
    """Copy, check and switch the chunks and copies of a store on the workers of an executor.

    Args:
        session: The session.
        calls: The calls on the workers.
        migration: Gets the totals of the calls.
        old: The old store.
        new: The new store.

    Raises:
        InvalidInput, Unavailable: The workers cannot be used, or a call failed too often.
        StoreFailed, AccessDenied: The new store cannot be used.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    selection = Selection(store=old.url)
    calls.check({old.url, new.url, *reachable_of(session, session.catalog.copies.stores(selection))})
    chunks: Iterator[ChunkToCopy] = ChunkCopier(session, new, owner_name("migrate")).chunks(selection)
    groups = calls.grouped(chunks, copy_weight)
    parts = (ChunksToMigrate([chunk.uuid for chunk in group], old.url, new.url) for group in groups)
    with closing(calls.run(migrate_chunks, parts)) as ended:
        for _, report in ended:
            migration.add(report)
    migration.interrupted = calls.interrupted


def migrate_chunks(session: Session, part: ChunksToMigrate) -> MigrateReport:
    """Migrate chunks on a worker, and return the totals. This is the call that executors run."""
    stores = ReachableStores(session)
    old, new = stores.open(part.old), stores.check_place(part.new)
    clear_leftovers(session, part.uuids, new.url)
    migration = Migration(session, old, new)
    migration.migrate_chunks(Selection(uuids=_left(session, part)))
    return migration.report()


def _left(session: Session, part: ChunksToMigrate) -> list[UUID]:
    """Return the chunks that the old store still has. A lost worker may have migrated the others."""
    copies = session.catalog.copies
    return [uuid for uuid in part.uuids if part.old in {url for _, url, _ in copies.active_replicas(uuid)}]

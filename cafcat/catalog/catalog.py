"""The catalog: one Postgres database, in parts that share a connection."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.files.lookup import Lookup
from cafcat.catalog.locking import Patience

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cafcat.catalog.chunks.adopting import Adopting
    from cafcat.catalog.chunks.chunks import Chunks
    from cafcat.catalog.chunks.commit import Commit
    from cafcat.catalog.chunks.copies import Copies
    from cafcat.catalog.chunks.pruning import Pruning
    from cafcat.catalog.chunks.recovery import Recovery
    from cafcat.catalog.chunks.rewriting import Rewriting
    from cafcat.catalog.chunks.verification import Verification
    from cafcat.catalog.files.consistent import ConsistentFiles
    from cafcat.catalog.files.exporting import Export
    from cafcat.catalog.files.log_units import LogUnits
    from cafcat.catalog.files.removal import Removal
    from cafcat.catalog.files.sources import Sources
    from cafcat.catalog.history.journal import Journal
    from cafcat.catalog.history.listings import Listings
    from cafcat.catalog.history.runs import Runs
    from cafcat.catalog.reports import Reports
    from cafcat.catalog.stores.identity import Identities
    from cafcat.catalog.stores.stores import ServerVerdicts, Stores
    from cafcat.catalog.transfer.comparing import Comparing
    from cafcat.catalog.transfer.dump import Backups, Dump
    from cafcat.catalog.transfer.rebuilding import Rebuilding

__all__ = ["Catalog"]


class Catalog:
    """Connects at the first call. No session or connection crosses the line of this room. Each part is imported
    when it is asked for: a command that reads one file needs one of them.

    files: look-ups and listings · stores: folders and buckets · chunks: their lives · commit: mappings ·
    adopting: of archives that are there already · journal: the order of changes · copies: of chunks, in further
    stores · runs: ingest runs and events · sources: roots that files came from · listings: positions in remote
    sources · logs: log files in archives · recovery: what dead writers left · verification: checks and what they
    found · removal: of files, and their way back · pruning: chunks that go · rebuilding: from stores alone ·
    comparing: with another catalog · dump: all of it, out and in · backups: objects with that · moment: files and
    chunks, out · export: files in the order of their bytes, out · rewriting: chunks whose live files are worth
    copying · verdicts: what S3 servers cannot do · reports: totals, histories, queries ·
    identities: of the catalog and of its stores.
    """

    def __init__(
        self,
        connect: Callable[[], PgConnection],
        connect_reader: Callable[[], PgConnection] | None = None,
        *,
        lock_timeout: float | None = None,
    ) -> None:
        """Create a catalog.

        Args:
            connect: returns a new psycopg connection in autocommit mode.
            connect_reader: likewise, for queries of the user; `connect` if not given.
            lock_timeout: how long to wait for a lock, in seconds; None for the defaults.
        """
        self._connect = connect
        self._connect_reader = connect_reader or connect
        self._patience = Patience(lock_timeout)
        self._connection = Connection(connect, self._patience)

    def announce_waits(self, warn: Callable[[str], object]) -> None:
        """Have `warn` called with a message when another session holds a lock for long."""
        self._patience.warn = warn

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        self._connection.close()

    @cached_property
    def files(self) -> Lookup:
        return Lookup(self._connection)

    @cached_property
    def chunks(self) -> "Chunks":
        from cafcat.catalog.chunks.chunks import Chunks

        return Chunks(self._connection)

    @cached_property
    def verdicts(self) -> "ServerVerdicts":
        from cafcat.catalog.stores.stores import ServerVerdicts

        return ServerVerdicts(self._connection)

    @cached_property
    def commit(self) -> "Commit":
        from cafcat.catalog.chunks.commit import Commit

        return Commit(self._connection)

    @cached_property
    def adopting(self) -> "Adopting":
        from cafcat.catalog.chunks.adopting import Adopting

        return Adopting(self._connection)

    @cached_property
    def journal(self) -> "Journal":
        from cafcat.catalog.history.journal import Journal

        return Journal(self._connection)

    @cached_property
    def copies(self) -> "Copies":
        from cafcat.catalog.chunks.copies import Copies

        return Copies(self._connection)

    @cached_property
    def identities(self) -> "Identities":
        from cafcat.catalog.stores.identity import Identities

        return Identities(self._connection)

    @cached_property
    def runs(self) -> "Runs":
        from cafcat.catalog.history.runs import Runs

        return Runs(self._connection)

    @cached_property
    def sources(self) -> "Sources":
        from cafcat.catalog.files.sources import Sources

        return Sources(self._connection)

    @cached_property
    def listings(self) -> "Listings":
        from cafcat.catalog.history.listings import Listings

        return Listings(self._connection)

    @cached_property
    def logs(self) -> "LogUnits":
        from cafcat.catalog.files.log_units import LogUnits

        return LogUnits(self._connection)

    @cached_property
    def recovery(self) -> "Recovery":
        from cafcat.catalog.chunks.recovery import Recovery

        return Recovery(self._connection)

    @cached_property
    def stores(self) -> "Stores":
        from cafcat.catalog.stores.stores import Stores

        return Stores(self._connection)

    @cached_property
    def verification(self) -> "Verification":
        from cafcat.catalog.chunks.verification import Verification

        return Verification(self._connection)

    @cached_property
    def removal(self) -> "Removal":
        from cafcat.catalog.files.removal import Removal

        return Removal(self._connection)

    @cached_property
    def pruning(self) -> "Pruning":
        from cafcat.catalog.chunks.pruning import Pruning

        return Pruning(self._connection)

    @cached_property
    def rebuilding(self) -> "Rebuilding":
        from cafcat.catalog.transfer.rebuilding import Rebuilding

        return Rebuilding(self._connection)

    @cached_property
    def comparing(self) -> "Comparing":
        from cafcat.catalog.transfer.comparing import Comparing

        return Comparing(self._connect)

    @cached_property
    def dump(self) -> "Dump":
        from cafcat.catalog.transfer.dump import Dump

        return Dump(self._connection, self._connect)

    @cached_property
    def backups(self) -> "Backups":
        from cafcat.catalog.transfer.dump import Backups

        return Backups(self._connection)

    def moment(self) -> "AbstractContextManager[ConsistentFiles]":
        """Its files and chunks as they are now, on a connection of its own, however long it takes to read them.
        Raises CatalogUnavailable, CatalogOutdated."""
        from cafcat.catalog.files.consistent import moment

        return moment(self._connect)

    def export(self) -> "AbstractContextManager[Export]":
        """Its files as they are now, likewise. Raises CatalogUnavailable, CatalogOutdated."""
        from cafcat.catalog.files.exporting import export

        return export(self._connect)

    @cached_property
    def rewriting(self) -> "Rewriting":
        from cafcat.catalog.chunks.rewriting import Rewriting

        return Rewriting(self._connection)

    @cached_property
    def reports(self) -> "Reports":
        from cafcat.catalog.reports import Reports

        return Reports(self._connection, self._connect_reader)

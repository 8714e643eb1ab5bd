"""The catalog: one Postgres database, in parts that share a connection."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.locking import Patience
from cafcat.catalog.lookup import Lookup

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cafcat.catalog.adopting import Adopting
    from cafcat.catalog.chunks import Chunks
    from cafcat.catalog.commit import Commit
    from cafcat.catalog.comparing import Comparing
    from cafcat.catalog.copies import Copies
    from cafcat.catalog.dump import Backups, Dump
    from cafcat.catalog.exporting import Export
    from cafcat.catalog.identity import Identities
    from cafcat.catalog.journal import Journal
    from cafcat.catalog.listings import Listings
    from cafcat.catalog.log_units import LogUnits
    from cafcat.catalog.moment import Moment
    from cafcat.catalog.pruning import Pruning
    from cafcat.catalog.rebuilding import Rebuilding
    from cafcat.catalog.recovery import Recovery
    from cafcat.catalog.removal import Removal
    from cafcat.catalog.reports import Reports
    from cafcat.catalog.rewriting import Rewriting
    from cafcat.catalog.runs import Runs
    from cafcat.catalog.sources import Sources
    from cafcat.catalog.stores import ServerVerdicts, Stores
    from cafcat.catalog.verification import Verification

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
        from cafcat.catalog.chunks import Chunks

        return Chunks(self._connection)

    @cached_property
    def verdicts(self) -> "ServerVerdicts":
        from cafcat.catalog.stores import ServerVerdicts

        return ServerVerdicts(self._connection)

    @cached_property
    def commit(self) -> "Commit":
        from cafcat.catalog.commit import Commit

        return Commit(self._connection)

    @cached_property
    def adopting(self) -> "Adopting":
        from cafcat.catalog.adopting import Adopting

        return Adopting(self._connection)

    @cached_property
    def journal(self) -> "Journal":
        from cafcat.catalog.journal import Journal

        return Journal(self._connection)

    @cached_property
    def copies(self) -> "Copies":
        from cafcat.catalog.copies import Copies

        return Copies(self._connection)

    @cached_property
    def identities(self) -> "Identities":
        from cafcat.catalog.identity import Identities

        return Identities(self._connection)

    @cached_property
    def runs(self) -> "Runs":
        from cafcat.catalog.runs import Runs

        return Runs(self._connection)

    @cached_property
    def sources(self) -> "Sources":
        from cafcat.catalog.sources import Sources

        return Sources(self._connection)

    @cached_property
    def listings(self) -> "Listings":
        from cafcat.catalog.listings import Listings

        return Listings(self._connection)

    @cached_property
    def logs(self) -> "LogUnits":
        from cafcat.catalog.log_units import LogUnits

        return LogUnits(self._connection)

    @cached_property
    def recovery(self) -> "Recovery":
        from cafcat.catalog.recovery import Recovery

        return Recovery(self._connection)

    @cached_property
    def stores(self) -> "Stores":
        from cafcat.catalog.stores import Stores

        return Stores(self._connection)

    @cached_property
    def verification(self) -> "Verification":
        from cafcat.catalog.verification import Verification

        return Verification(self._connection)

    @cached_property
    def removal(self) -> "Removal":
        from cafcat.catalog.removal import Removal

        return Removal(self._connection)

    @cached_property
    def pruning(self) -> "Pruning":
        from cafcat.catalog.pruning import Pruning

        return Pruning(self._connection)

    @cached_property
    def rebuilding(self) -> "Rebuilding":
        from cafcat.catalog.rebuilding import Rebuilding

        return Rebuilding(self._connection)

    @cached_property
    def comparing(self) -> "Comparing":
        from cafcat.catalog.comparing import Comparing

        return Comparing(self._connect)

    @cached_property
    def dump(self) -> "Dump":
        from cafcat.catalog.dump import Dump

        return Dump(self._connection, self._connect)

    @cached_property
    def backups(self) -> "Backups":
        from cafcat.catalog.dump import Backups

        return Backups(self._connection)

    def moment(self) -> "AbstractContextManager[Moment]":
        """Its files and chunks as they are now, on a connection of its own, however long it takes to read them.
        Raises CatalogUnavailable, CatalogOutdated."""
        from cafcat.catalog.moment import moment

        return moment(self._connect)

    def export(self) -> "AbstractContextManager[Export]":
        """Its files as they are now, likewise. Raises CatalogUnavailable, CatalogOutdated."""
        from cafcat.catalog.exporting import export

        return export(self._connect)

    @cached_property
    def rewriting(self) -> "Rewriting":
        from cafcat.catalog.rewriting import Rewriting

        return Rewriting(self._connection)

    @cached_property
    def reports(self) -> "Reports":
        from cafcat.catalog.reports import Reports

        return Reports(self._connection, self._connect_reader)

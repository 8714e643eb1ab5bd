"""The catalog: one PostgreSQL database. Its queries are methods of several classes; most share a connection."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Self

from cafcat.catalog.connection import Connection, Connector
from cafcat.catalog.files.lookup import Lookup
from cafcat.catalog.locking import LockWait
from cafcat.errors import CafcatError
from cafcat.progress import Progress

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cafcat.catalog.access_keys import AccessKeys
    from cafcat.catalog.chunks.adopting import Adopting
    from cafcat.catalog.chunks.chunks import Chunks
    from cafcat.catalog.chunks.commit import Commit
    from cafcat.catalog.chunks.copies import Copies
    from cafcat.catalog.chunks.pruning import Pruning
    from cafcat.catalog.chunks.recovery import Recovery
    from cafcat.catalog.chunks.rewriting import Rewriting
    from cafcat.catalog.chunks.verification import Verification
    from cafcat.catalog.console.reading import PageQueries
    from cafcat.catalog.files.consistent import ConsistentFiles
    from cafcat.catalog.files.exporting import Export
    from cafcat.catalog.files.folder_totals import FolderTotals
    from cafcat.catalog.files.log_units import LogUnits
    from cafcat.catalog.files.moving_back import MovingBack
    from cafcat.catalog.files.removal import Removal
    from cafcat.catalog.files.sources import Sources
    from cafcat.catalog.files.standby_lookup import ReadingCatalog
    from cafcat.catalog.files.versions import Versions
    from cafcat.catalog.health.server import ServerFacts
    from cafcat.catalog.health.stores import StoreHealth
    from cafcat.catalog.health.totals import Totals
    from cafcat.catalog.history.events import Events
    from cafcat.catalog.history.journal import Journal
    from cafcat.catalog.history.listings import Listings
    from cafcat.catalog.history.runs import Runs
    from cafcat.catalog.history.shards import Shards
    from cafcat.catalog.layout_change import LayoutChanges
    from cafcat.catalog.limits import Limits
    from cafcat.catalog.reports import Reports
    from cafcat.catalog.standby import Lag, Standby
    from cafcat.catalog.stores.identity import Identities
    from cafcat.catalog.stores.losing import Losing
    from cafcat.catalog.stores.stores import Stores
    from cafcat.catalog.stores.verdicts import ServerVerdicts
    from cafcat.catalog.transfer.comparing import Comparing
    from cafcat.catalog.transfer.dump import Backups, Dump
    from cafcat.catalog.transfer.rebuilding import Rebuilding

__all__ = ["Catalog"]


class Catalog:
    """The catalog in one PostgreSQL database. It connects at the first query.

    Its queries are methods of several classes. Each property returns an object of one of these classes, which is
    imported when the property is first used, because a command that reads one file needs only one class.

    Attributes:
        files: The queries that look up and list files.
        is_snapshot: False: see LocationCatalog.
    """

    is_snapshot = False

    def __init__(
        self,
        database: Connector,
        *,
        lock_timeout: float | None = None,
        standby: Connector | None = None,
        max_staleness: float = 60,
    ) -> None:
        """Prepare to query a catalog. No connection is opened yet.

        Args:
            database: Opens connections to the database.
            lock_timeout: Longest wait for a lock, in seconds; None for 600 seconds, or less in some operations. A
                few operations have a fixed limit of their own.
            standby: Opens connections to a standby server, which answers the look-ups of `reading`; None for none.
            max_staleness: How far the standby may be behind the primary, in seconds.
        """
        self._database = database
        self._lock_wait = LockWait(lock_timeout)
        self._connection = Connection(database, self._lock_wait)
        self.files = Lookup(self._connection)
        self._standby: Standby | None = None
        if standby is not None:
            from cafcat.catalog import standby as replica

            self._standby = replica.Standby(
                standby, self._connection, max_staleness=max_staleness, lock_wait=self._lock_wait
            )

    def announce_waits(self, progress: Progress) -> None:
        """Let `progress` receive warnings when `locking.acquire` waits over 5 seconds for a lock.

        Other waits for locks are not reported.
        """
        self._lock_wait.progress = progress

    def close(self) -> None:
        """Close the connections. Idempotent; the next query connects anew."""
        self._connection.close()
        if self._standby is not None:
            self._standby.close()

    @cached_property
    def reading(self) -> "Self | ReadingCatalog":
        """Return the look-ups and listings for reading files: on the standby, if there is one, else this catalog.

        A standby may be some seconds behind. What decides about changes of the catalog uses `files`.
        """
        if self._standby is None:
            return self
        from cafcat.catalog.files.standby_lookup import ReadingCatalog

        return ReadingCatalog(self, self._standby)

    @contextmanager
    def second_connection(self) -> "Iterator[Catalog]":
        """Open a context with a catalog of the same database that has a connection of its own.

        A long transaction in one thread then does not delay the statements of another one. If no further connection
        can be made, for example because of max_connections, the context is this catalog.
        """
        with closing(self._copy()) as other:
            catalog: Catalog = other
            try:
                other.connect()
            except CafcatError:
                catalog = self
            yield catalog

    def takes_connections(self, count: int) -> bool:
        """Return True if the database takes so many further connections at the same time."""
        with ExitStack() as opened:
            try:
                for _ in range(count):
                    opened.enter_context(closing(self._copy())).connect()
            except CafcatError:
                return False
        return True

    def _copy(self) -> "Catalog":
        """Return a catalog of the same database that has not connected yet."""
        other = Catalog(self._database, lock_timeout=self._lock_wait.limit_seconds)
        other.announce_waits(self._lock_wait.progress)
        return other

    def connect(self) -> None:
        """Connect to the database, which is otherwise done by the first query.

        Raises:
            CatalogOutdated: The database has no schema, or one of another revision.
            CatalogUnavailable: The database cannot be reached, or takes no further connection.
            AccessDenied: The server rejects user and password.
            InvalidInput: The URL of the database cannot be read.
        """
        with self._connection.statement(read_only=True):
            pass

    def fresh(self) -> Self:
        """Return a view of this catalog, with the same connection, whose `reading` uses the primary."""
        view = copy.copy(self)
        view._standby = None
        view.__dict__.pop("reading", None)
        return view

    @cached_property
    def chunks(self) -> "Chunks":
        """Return the queries that begin, abandon, find and list chunks, and renew their leases."""
        from cafcat.catalog.chunks.chunks import Chunks

        return Chunks(self._connection)

    @cached_property
    def verdicts(self) -> "ServerVerdicts":
        """Return the queries that store and read which checks of S3 features the servers of the stores failed."""
        from cafcat.catalog.stores.verdicts import ServerVerdicts

        return ServerVerdicts(self._connection)

    @cached_property
    def commit(self) -> "Commit":
        """Return the queries that commit a chunk with the locations of its files."""
        from cafcat.catalog.chunks.commit import Commit

        return Commit(self._connection)

    @cached_property
    def adopting(self) -> "Adopting":
        """Return the queries that enter existing archives of other programs as chunks (`cafcat adopt`)."""
        from cafcat.catalog.chunks.adopting import Adopting

        return Adopting(self._connection)

    @cached_property
    def events(self) -> "Events":
        """Return the queries that record which commands were run."""
        from cafcat.catalog.history.events import Events

        return Events(self._connection)

    @cached_property
    def folders(self) -> "FolderTotals":
        """Return the queries on the totals of folders."""
        from cafcat.catalog.files.folder_totals import FolderTotals

        return FolderTotals(self._connection)

    @cached_property
    def journal(self) -> "Journal":
        """Return the queries on the journal: ordered records of commits of chunks, removals and restorations."""
        from cafcat.catalog.history.journal import Journal

        return Journal(self._connection)

    @cached_property
    def copies(self) -> "Copies":
        """Return the queries on the rows of copies of chunks in further stores."""
        from cafcat.catalog.chunks.copies import Copies

        return Copies(self._connection)

    @cached_property
    def identities(self) -> "Identities":
        """Return the queries on the UUIDs of the catalog and of its stores."""
        from cafcat.catalog.stores.identity import Identities

        return Identities(self._connection)

    @cached_property
    def runs(self) -> "Runs":
        """Return the queries that record and list ingest runs, and record the files that a run could not pack."""
        from cafcat.catalog.history.runs import Runs

        return Runs(self._connection)

    @cached_property
    def limits(self) -> "Limits":
        """Return the queries on the limits of requests and bytes, and on the shares of processes."""
        from cafcat.catalog.limits import Limits

        return Limits(self._connection)

    @cached_property
    def sources(self) -> "Sources":
        """Return the queries on the sources: the folders and URLs from which files were ingested."""
        from cafcat.catalog.files.sources import Sources

        return Sources(self._connection)

    @cached_property
    def listings(self) -> "Listings":
        """Return the queries that save and find the positions of listings of remote sources."""
        from cafcat.catalog.history.listings import Listings

        return Listings(self._connection)

    @cached_property
    def shards(self) -> "Shards":
        """Return the queries on the shards of ingests by many workers."""
        from cafcat.catalog.history.shards import Shards

        return Shards(self._connection)

    @cached_property
    def logs(self) -> "LogUnits":
        """Return the queries that find log files in archives, and the archives that a search has to open."""
        from cafcat.catalog.files.log_units import LogUnits

        return LogUnits(self._connection)

    @cached_property
    def recovery(self) -> "Recovery":
        """Return the queries of `cafcat recover`, which find leftovers of dead writers and acquire their leases."""
        from cafcat.catalog.chunks.recovery import Recovery

        return Recovery(self._connection)

    @cached_property
    def moving_back(self) -> "MovingBack":
        """Return the queries that return files of a lost chunk to chunks that had them before."""
        from cafcat.catalog.files.moving_back import MovingBack

        return MovingBack(self._connection)

    @cached_property
    def losing(self) -> "Losing":
        """Return the queries about a store that is lost."""
        from cafcat.catalog.stores.losing import Losing

        return Losing(self._connection)

    @cached_property
    def stores(self) -> "Stores":
        """Return the queries on the stores: the folders and buckets that hold objects of the catalog."""
        from cafcat.catalog.stores.stores import Stores

        return Stores(self._connection)

    @cached_property
    def verification(self) -> "Verification":
        """Return the queries of `cafcat verify`: they select objects to check, and record the results."""
        from cafcat.catalog.chunks.verification import Verification

        return Verification(self._connection)

    @cached_property
    def removal(self) -> "Removal":
        """Return the queries that remove files from the catalog, and restore removed files."""
        from cafcat.catalog.files.removal import Removal

        return Removal(self._connection)

    @cached_property
    def pruning(self) -> "Pruning":
        """Return the queries of `cafcat prune`, which find unneeded chunks and copies and mark them as deleted."""
        from cafcat.catalog.chunks.pruning import Pruning

        return Pruning(self._connection)

    @cached_property
    def rebuilding(self) -> "Rebuilding":
        """Return the queries that fill an empty catalog from the chunks and journal records in stores."""
        from cafcat.catalog.transfer.rebuilding import Rebuilding

        return Rebuilding(self._connection)

    @cached_property
    def comparing(self) -> "Comparing":
        """Return the queries that read this catalog for a comparison with another catalog."""
        from cafcat.catalog.transfer.comparing import Comparing

        return Comparing(self._database)

    @cached_property
    def dump(self) -> "Dump":
        """Return the queries that read the whole catalog for a backup, and load it from a backup."""
        from cafcat.catalog.transfer.dump import Dump

        return Dump(self._connection, self._database)

    @cached_property
    def backups(self) -> "Backups":
        """Return the queries on the rows of the backups of this catalog in stores."""
        from cafcat.catalog.transfer.dump import Backups

        return Backups(self._connection)

    def consistent_read(self) -> "AbstractContextManager[ConsistentFiles]":
        """Open a repeatable-read transaction on a new connection, to read files and their chunks.

        The transaction sees the catalog as of its first query, however long it takes to read the files.

        Raises:
            CatalogUnavailable: The database cannot be reached.
            AccessDenied: The server rejects user and password.
            InvalidInput: The URL of the database cannot be read.
            CatalogOutdated: The database has no schema, or one of another revision.
        """
        from cafcat.catalog.files.consistent import consistent_read

        return consistent_read(self._database)

    def export(self) -> "AbstractContextManager[Export]":
        """Open a repeatable-read transaction on a new connection, to read files in the order of their bytes.

        The transaction sees the catalog as of its first query.

        Raises:
            CatalogUnavailable: The database cannot be reached.
            AccessDenied: The server rejects user and password.
            InvalidInput: The URL of the database cannot be read.
            CatalogOutdated: The database has no schema, or one of another revision.
        """
        from cafcat.catalog.files.exporting import export

        return export(self._database)

    @cached_property
    def layout(self) -> "LayoutChanges":
        """Return the queries on the layout of file_locations: a plain table, or partitions; and its change."""
        from cafcat.catalog.layout_change import LayoutChanges

        return LayoutChanges(self._connection)

    @cached_property
    def rewriting(self) -> "Rewriting":
        """Return the queries of repack and repair, which find chunks whose live files can be copied."""
        from cafcat.catalog.chunks.rewriting import Rewriting

        return Rewriting(self._connection)

    @cached_property
    def reports(self) -> "Reports":
        """Return the reports: totals, retired locations of a path, contradictory rows, queries of the user."""
        from cafcat.catalog.reports import Reports

        return Reports(self._connection, self._database)

    @cached_property
    def server(self) -> "ServerFacts":
        """Return the queries about the database server, which work without cafcat's schema, too."""
        from cafcat.catalog.health.server import ServerFacts

        return ServerFacts(self._connection)

    @cached_property
    def store_health(self) -> "StoreHealth":
        """Return the queries for the facts about the stores in the catalog."""
        from cafcat.catalog.health.stores import StoreHealth

        return StoreHealth(self._connection)

    def replica_lag(self, replica: Connector) -> "Lag":
        """Return how far a standby server is behind the database of this catalog.

        Args:
            replica: Opens connections to the standby server.

        Raises:
            InvalidInput: The server does not follow the primary, or has another catalog.
            CatalogUnavailable, CatalogOutdated, AccessDenied: A server does not answer, or has no catalog.
        """
        from cafcat.catalog.standby import lag_of

        connection = Connection(replica)
        try:
            return lag_of(self._connection, connection)
        finally:
            connection.close()

    @cached_property
    def totals(self) -> "Totals":
        """Return the query for numbers of the catalog: chunks, runs, backlog, verifications, backups."""
        from cafcat.catalog.health.totals import Totals

        return Totals(self._connection)

    @cached_property
    def access_keys(self) -> "AccessKeys":
        """Return the queries on the keys with which programs read files through the S3 server."""
        from cafcat.catalog.access_keys import AccessKeys

        return AccessKeys(self._connection)

    @cached_property
    def versions(self) -> "Versions":
        """Return the queries that find the present and former contents of paths."""
        from cafcat.catalog.files.versions import Versions

        return Versions(self._connection)

    @cached_property
    def pages(self) -> "PageQueries":
        """Return what runs the queries of the console's pages (`cafcat/catalog/console/`)."""
        from cafcat.catalog.console.reading import PageQueries

        return PageQueries(self._connection, self._database)

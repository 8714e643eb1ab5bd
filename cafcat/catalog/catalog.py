"""The catalog: one Postgres database, in parts that share a connection."""

from collections.abc import Callable

from cafcat.catalog.chunks import Chunks
from cafcat.catalog.commit import Commit
from cafcat.catalog.comparing import Comparing
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.copies import Copies
from cafcat.catalog.dump import Backups, Dump
from cafcat.catalog.journal import Journal
from cafcat.catalog.listings import Listings
from cafcat.catalog.lookup import Lookup
from cafcat.catalog.pruning import Pruning
from cafcat.catalog.rebuilding import Rebuilding
from cafcat.catalog.recovery import Recovery
from cafcat.catalog.removal import Removal
from cafcat.catalog.reports import Reports
from cafcat.catalog.rewriting import Rewriting
from cafcat.catalog.runs import Runs
from cafcat.catalog.verification import Verification

__all__ = ["Catalog"]


class Catalog:
    """Connects at the first call. No session or connection crosses the line of this room.

    files: look-ups and listings · chunks: their lives · commit: mappings · journal: the order of changes ·
    copies: of chunks, in further stores · runs: ingest runs and events · listings: positions in remote sources ·
    recovery: what dead writers left · removal: of files, and their way back · pruning: chunks that go · rebuilding:
    from stores alone · comparing: with another catalog · dump: all of it, out and in · backups: objects with that ·
    reports: totals, histories, queries.
    """

    def __init__(self, connect: Callable[[], PgConnection]) -> None:
        """`connect` gives a new psycopg connection in autocommit mode."""
        self._connection = Connection(connect)
        self.files = Lookup(self._connection)
        self.chunks = Chunks(self._connection)
        self.commit = Commit(self._connection)
        self.journal = Journal(self._connection)
        self.copies = Copies(self._connection)
        self.runs = Runs(self._connection)
        self.listings = Listings(self._connection)
        self.recovery = Recovery(self._connection)
        self.verification = Verification(self._connection)
        self.removal = Removal(self._connection)
        self.pruning = Pruning(self._connection)
        self.rebuilding = Rebuilding(self._connection)
        self.comparing = Comparing(connect)
        self.dump = Dump(self._connection, connect)
        self.backups = Backups(self._connection)
        self.rewriting = Rewriting(self._connection)
        self.reports = Reports(self._connection, connect)

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        self._connection.close()

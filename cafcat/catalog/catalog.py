"""The catalog: one Postgres database, in parts that share a connection."""

from collections.abc import Callable

from cafcat.catalog.chunks import Chunks
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.listings import Listings
from cafcat.catalog.lookup import Lookup
from cafcat.catalog.recovery import Recovery
from cafcat.catalog.reports import Reports
from cafcat.catalog.runs import Runs

__all__ = ["Catalog"]


class Catalog:
    """Connects at the first call. No session or connection crosses the line of this room.

    files: look-ups and listings · chunks: the write path · runs: ingest runs and events · listings: positions
    in remote sources · recovery: what dead writers left · reports: totals, histories, queries.
    """

    def __init__(self, connect: Callable[[], PgConnection]) -> None:
        """`connect` gives a new psycopg connection in autocommit mode."""
        self._connection = Connection(connect)
        self.files = Lookup(self._connection)
        self.chunks = Chunks(self._connection)
        self.runs = Runs(self._connection)
        self.listings = Listings(self._connection)
        self.recovery = Recovery(self._connection)
        self.reports = Reports(self._connection, connect)

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        self._connection.close()

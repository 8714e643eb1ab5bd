"""Listings of remote sources: the positions where interrupted listings continue."""

from typing import NamedTuple

from cafcat.catalog.connection import Connection
from cafcat.catalog.history.runs import iso

__all__ = ["Listing", "Listings"]


class Listing(NamedTuple):
    """An unfinished listing of a remote source, which a later ingest run can continue.

    Attributes:
        id: listings.id.
        position: All objects up to this key were processed; None if none was.
        started_at: When the listing began: ISO 8601, UTC.
    """

    id: int
    position: str | None
    started_at: str


class Listings:
    """Queries on the rows of `listings`. Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, source: str, scope: str) -> Listing | None:
        """Return the unfinished listing of a source and scope; None if there is none."""
        statement = (
            f"SELECT id, position, {iso('started_at')} FROM listings "  # noqa: S608
            "WHERE source = %s AND scope = %s AND finished_at IS NULL"
        )
        with self._connection.statement() as connection:
            row = connection.execute(statement.encode(), (source, scope)).fetchone()
        return None if row is None else Listing(*row)

    def begin(self, source: str, scope: str, run_id: int, *, afresh: bool = False) -> Listing:
        """Return the unfinished listing of a source and scope, or insert a new one.

        Simultaneous runs of the same source share a listing.

        Args:
            source: URL of the source.
            scope: All other values on which the listing depends: server, prefix, patterns, handling of conflicts.
            run_id: ingest_runs.id of the run that continues the listing.
            afresh: Finish an unfinished listing first, so that a new one begins.
        """
        close = "UPDATE listings SET finished_at = now() WHERE source = %s AND scope = %s AND finished_at IS NULL"
        statement = (
            "INSERT INTO listings (source, scope, run_id) VALUES (%s, %s, %s) "  # noqa: S608
            "ON CONFLICT (source, scope) WHERE finished_at IS NULL DO UPDATE SET run_id = excluded.run_id "
            "RETURNING id, position, " + iso("listings.started_at")
        )
        with self._connection.transaction() as connection:
            if afresh:
                connection.execute(close, (source, scope))
            row = connection.execute(statement.encode(), (source, scope, run_id)).fetchone()
        assert row is not None  # noqa: S101 - RETURNING of one inserted or updated row
        return Listing(*row)

    def advance(self, listing_id: int, position: str) -> None:
        """Record that all objects of the source up to a key were processed.

        A key before the recorded position changes nothing. Keys are listed in the order of their bytes.
        """
        statement = (
            "UPDATE listings SET position = %(position)s, advanced_at = now() "
            'WHERE id = %(id)s AND (position IS NULL OR position < %(position)s COLLATE "C")'
        )
        with self._connection.statement() as connection:
            connection.execute(statement, {"id": listing_id, "position": position})

    def finish(self, listing_id: int) -> None:
        """Record the end of a listing. The next listing of its source and scope starts at the beginning."""
        statement = "UPDATE listings SET finished_at = now() WHERE id = %s AND finished_at IS NULL"
        with self._connection.statement() as connection:
            connection.execute(statement, [listing_id])

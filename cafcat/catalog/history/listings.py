"""Listings of remote sources: where an interrupted one goes on."""

from typing import NamedTuple

from cafcat.catalog.connection import Connection
from cafcat.catalog.history.runs import iso

__all__ = ["Listing", "Listings"]


class Listing(NamedTuple):
    """An open listing. position: the last key that was dealt with, None at the beginning; started_at: ISO 8601 in
    UTC."""

    id: int
    position: str | None
    started_at: str


class Listings:
    """Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, source: str, scope: str) -> Listing | None:
        """The open listing of a source, if there is one."""
        statement = (
            f"SELECT id, position, {iso('started_at')} FROM listings "  # noqa: S608
            "WHERE source = %s AND scope = %s AND finished_at IS NULL"
        )
        with self._connection.statement() as connection:
            row = connection.execute(statement.encode(), (source, scope)).fetchone()
        return None if row is None else Listing(*row)

    def begin(self, source: str, scope: str, run: int, *, afresh: bool = False) -> Listing:
        """The open listing of a source, or a new one; `afresh` closes the open one first. Runs of the same source
        at the same time share it."""
        close = "UPDATE listings SET finished_at = now() WHERE source = %s AND scope = %s AND finished_at IS NULL"
        statement = (
            "INSERT INTO listings (source, scope, run_id) VALUES (%s, %s, %s) "  # noqa: S608
            "ON CONFLICT (source, scope) WHERE finished_at IS NULL DO UPDATE SET run_id = excluded.run_id "
            "RETURNING id, position, " + iso("listings.started_at")
        )
        with self._connection.transaction() as connection:
            if afresh:
                connection.execute(close, (source, scope))
            row = connection.execute(statement.encode(), (source, scope, run)).fetchone()
        assert row is not None  # noqa: S101 - RETURNING of one inserted or updated row
        return Listing(*row)

    def advance(self, listing_id: int, position: str) -> None:
        """Everything up to this key was dealt with. Never goes back: keys are listed in byte order."""
        statement = (
            "UPDATE listings SET position = %(position)s, advanced_at = now() "
            'WHERE id = %(id)s AND (position IS NULL OR position < %(position)s COLLATE "C")'
        )
        with self._connection.statement() as connection:
            connection.execute(statement, {"id": listing_id, "position": position})

    def finish(self, listing_id: int) -> None:
        """The listing came to its end: the next one begins anew."""
        statement = "UPDATE listings SET finished_at = now() WHERE id = %s AND finished_at IS NULL"
        with self._connection.statement() as connection:
            connection.execute(statement, [listing_id])

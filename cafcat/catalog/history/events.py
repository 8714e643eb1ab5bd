"""The append-only log of events that concern runs, chunks and files, and of who did what."""

import getpass
import socket
from collections.abc import Mapping
from functools import cache
from typing import Any

from psycopg.types.json import Jsonb

from cafcat.catalog.connection import Connection, PgConnection

__all__ = ["Events", "actor", "record_event"]


@cache
def actor() -> str:
    """Return user and host of this process, such as "ops@host-7"; the number of a user who has no name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        import os

        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def record_event(
    connection: PgConnection,
    kind: str,
    detail: str,
    *,
    chunk_id: int | None = None,
    run_id: int | None = None,
    files_change: int | None = None,
    bytes_change: int | None = None,
) -> None:
    """Insert an event, in the caller's transaction.

    Args:
        connection: A connection with an open transaction.
        kind: Kind of the event, such as "chunk_begun".
        detail: The event, in one line.
        chunk_id: chunks.id. The event also gets the run of this chunk. None if the event is not about one chunk.
        run_id: ingest_runs.id, for an event that is not about one chunk; None without one.
        files_change: By how much the transaction changes the number of live files; None if it changes none.
        bytes_change: By how much the transaction changes the total size of all live files.
    """
    connection.execute(
        "INSERT INTO events (kind, detail, chunk_id, run_id, actor, files_change, bytes_change) "
        "VALUES (%s, %s, %s, coalesce(%s, (SELECT run_id FROM chunks WHERE id = %s)), %s, %s, %s)",
        (kind, detail, chunk_id, run_id, chunk_id, actor(), files_change, bytes_change),
    )


class Events:
    """Queries on the rows of `events` that are not part of another transaction. Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def record_command(self, name: str, options: Mapping[str, Any]) -> None:
        """Insert an event of the kind `command`.

        Args:
            name: Name of the command, such as "rm".
            options: Its options, as JSON values.
        """
        statement = "INSERT INTO events (kind, detail, options, actor) VALUES ('command', %s, %s, %s)"
        with self._connection.statement() as connection:
            connection.execute(statement, (name, Jsonb(dict(options)), actor()))

"""The append-only log of events that concern runs, chunks and files."""

from cafcat.catalog.connection import PgConnection

__all__ = ["record_event"]


def record_event(connection: PgConnection, kind: str, chunk_id: int, detail: str) -> None:
    """Insert an event of a chunk, in the caller's transaction.

    Args:
        connection: A connection with an open transaction.
        kind: Kind of the event, such as "chunk_begun".
        chunk_id: chunks.id. The event also gets the run of this chunk.
        detail: The event, in one line.
    """
    connection.execute(
        "INSERT INTO events (kind, chunk_id, run_id, detail) SELECT %s, id, run_id, %s FROM chunks WHERE id = %s",
        (kind, detail, chunk_id),
    )

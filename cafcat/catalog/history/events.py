"""The append-only log of what happened to runs, chunks and files."""

from cafcat.catalog.connection import PgConnection

__all__ = ["record_event"]


def record_event(connection: PgConnection, kind: str, chunk_id: int, detail: str) -> None:
    """One line about a chunk, in the caller's transaction."""
    connection.execute(
        "INSERT INTO events (kind, chunk_id, run_id, detail) SELECT %s, id, run_id, %s FROM chunks WHERE id = %s",
        (kind, detail, chunk_id),
    )

"""Write chunks into a catalog as an ingest does, and query the catalog with SQL."""

from collections.abc import Mapping
from typing import Any, Protocol

import psycopg

import cafcat
from cafcat.formats.base import Format
from cafcat.formats.caf.format import CAF
from cafcat.model import OnConflict
from cafcat.operations.chosen_stores import store_to_write
from cafcat.progress import Progress
from cafcat.writing.chunk import ChunkTarget, OpenChunk
from tests.worlds.places import Place

__all__ = ["MODIFIED", "Opener", "begin", "commit", "live", "reasons", "sql", "state_of"]

MODIFIED = 1_795_255_200_123_456_000


class Opener(Protocol):
    """The type of the fixture `open_at`, which opens a repository whose store is at a place."""

    def __call__(self, place: Place) -> cafcat.Repository: ...


def begin(
    repository: cafcat.Repository,
    files: Mapping[str, bytes],
    on_conflict: str = OnConflict.REPLACE,
    modified_ns: int | None = MODIFIED,
    *,
    all_new: bool = True,
    archive_format: Format = CAF,
) -> OpenChunk:
    """Write a chunk with these files as an ingest does, and leave it uncommitted.

    Args:
        repository: the repository that gets the chunk.
        files: contents by path.
        on_conflict: recorded in the options of the run.
        modified_ns: the modification time of all files.
        all_new: the chunk is committed as if none of its paths were in the catalog.
        archive_format: the format of the chunk.
    """
    run = repository.session.catalog.runs.begin_run(
        sources=["tree"], options={"on_conflict": on_conflict}, version="0"
    )
    store = store_to_write(repository.session)
    repository.session.catalog.stores.register(store.url)
    chunk = OpenChunk(ChunkTarget(repository.session.catalog, store, archive_format, run, "here:1:test"))
    chunk.all_new = all_new
    for path, content in files.items():
        chunk.add(path, content, modified_ns)
    return chunk


def commit(
    repository: cafcat.Repository,
    files: Mapping[str, bytes],
    on_conflict: OnConflict = OnConflict.REPLACE,
    modified_ns: int | None = MODIFIED,
) -> str:
    """Write and commit a chunk with these files, and return its uuid."""
    chunk = begin(repository, files, on_conflict, modified_ns, all_new=False)
    chunk.finish(on_conflict, Progress())
    return str(chunk.uuid)


def sql(repository: cafcat.Repository, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run a statement in the catalog's database, and return its rows."""
    with psycopg.connect(str(repository.settings.database_url)) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def state_of(repository: cafcat.Repository, chunk: str) -> str:
    """Return the state of a chunk."""
    [(state,)] = sql(repository, "SELECT state FROM chunks WHERE uuid = %s", chunk)
    return str(state)


def live(repository: cafcat.Repository) -> set[str]:
    """Return all paths of the catalog."""
    return {row[0] for row in sql(repository, "SELECT file_path FROM file_locations")}


def reasons(repository: cafcat.Repository, path: str) -> list[tuple[str, str]]:
    """Return the chunk and the reason of every earlier version of a path."""
    return [(str(old.location.chunk), old.reason) for old in repository.history(path)]

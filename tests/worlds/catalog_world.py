"""A catalog with chunks as an ingest writes them, and what SQL says of it."""

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
    """The fixture `open_at`."""

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
    """A chunk with these files, as an ingest writes it, that nobody has finished. all_new: whether it takes them
    for files that the catalog has never had."""
    run = repository.session.catalog.runs.begin_run(
        sources=["tree"], options={"on_conflict": on_conflict}, version="0"
    )
    store = store_to_write(repository.session)
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
    """The same, committed. Returns its uuid."""
    chunk = begin(repository, files, on_conflict, modified_ns, all_new=False)
    chunk.finish(on_conflict, Progress())
    return str(chunk.uuid)


def sql(repository: cafcat.Repository, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(str(repository.settings.database_url)) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def state_of(repository: cafcat.Repository, chunk: str) -> str:
    [(state,)] = sql(repository, "SELECT state FROM chunks WHERE uuid = %s", chunk)
    return str(state)


def live(repository: cafcat.Repository) -> set[str]:
    """All paths of the catalog."""
    return {row[0] for row in sql(repository, "SELECT file_path FROM file_locations")}


def reasons(repository: cafcat.Repository, path: str) -> list[tuple[str, str]]:
    """Chunk and reason of all that a path was before."""
    return [(str(old.location.chunk), old.reason) for old in repository.history(path)]

"""A catalog with very many synthetic rows beside a few real files, and a choice of planner statistics.

The statistics of the states `small` and `midway` describe only the real files. A planner that trusts them takes a
folder of a hundred files for the whole table.
"""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

import cafcat
from tests.worlds.plans import BIG_TABLES

__all__ = ["FILES", "STATES", "SizeWorld"]

FILES = 120
"""Real files of a folder that a verb touches."""
STATES = ("small", "midway", "none", "fresh")
"""small: statistics from when the tables had only the real files. midway: statistics that were taken while the
transaction that wrote all rows was not committed, as autovacuum may do; by these the pages are nearly empty.
none: the server never collected any. fresh: statistics of the present rows."""

_TABLES = ", ".join(f"'{table}'::regclass" for table in (*sorted(BIG_TABLES), "chunks", "journal", "chunk_times"))
_ALL = (
    f"SELECT t.oid FROM pg_class AS t WHERE t.oid IN ({_TABLES}) "
    f"OR t.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent IN ({_TABLES}))"
)
"""The tables and their partitions."""
_RELATIONS = f"oid IN ({_ALL}) OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN ({_ALL}))"
_STATEMENTS = {
    "small": "SELECT",
    "midway": f"UPDATE pg_class SET relpages = pg_relation_size(oid) / 8192 WHERE {_RELATIONS}",
    "none": f"DELETE FROM pg_statistic WHERE starelid IN ({_ALL}); "
    f"UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE {_RELATIONS}",
    "fresh": "ANALYZE",
}
_CHUNK_FILES = 10_000
# All columns of a real chunk except its identity: a store has no objects of the synthetic chunks.
_CHUNKS = """
DO $$ DECLARE columns text; BEGIN
    SELECT string_agg(quote_ident(column_name), ', ') INTO columns FROM information_schema.columns
    WHERE table_schema = current_schema() AND table_name = 'chunks'
    AND column_name NOT IN ('id', 'uuid', 'object_key');
    EXECUTE format('INSERT INTO chunks (id, uuid, object_key, %s) OVERRIDING SYSTEM VALUE
        SELECT {first} + n, gen_random_uuid(), ''synthetic-'' || n, %s
        FROM chunks, generate_series(0, {chunks}) AS n WHERE id = {pattern}', columns, columns);
END $$
"""
_ROWS = """
INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, modified_at, file_path)
SELECT {first} + n / {per_chunk}, n % {per_chunk} * 100, n % {per_chunk} * 100 + 100, n, now(),
       'synthetic/' || lpad((n / 500)::text, 8, '0') || '/frame-' || lpad(n::text, 10, '0') || '.dat'
FROM generate_series(0::bigint, {rows} - 1) AS n;
INSERT INTO retired_locations (caf_file_id, start_byte, end_byte, crc32c, file_path, reason)
SELECT {first} + n / {per_chunk}, n, n, n, 'synthetic/' || n, (ARRAY['removed', 'replaced', 'moved'])[1 + n % 3]
FROM generate_series(0::bigint, {rows} / 4 - 1) AS n;
INSERT INTO journal (uuid, kind, unwritten) VALUES (gen_random_uuid(), 'remove', '{{}}');
INSERT INTO journal_files (journal_id, caf_file_id, start_byte, file_path)
SELECT (SELECT max(id) FROM journal), {first}, n, 'synthetic/' || n
FROM generate_series(0::bigint, {rows} / 4 - 1) AS n;
INSERT INTO ingestion_units (chunk_id, first_record, end_record, number, file_name, fields)
SELECT {first} + n / {per_chunk}, n, n + 1, n % {per_chunk}, 'synthetic/' || n || '.log', '{{}}'
FROM generate_series(0::bigint, {rows} / 4 - 1) AS n;
SELECT brin_summarize_new_values(oid) FROM pg_class
WHERE relkind = 'i' AND relname LIKE 'file_locations%caf_file_id_idx'
"""


class SizeWorld:
    """A database, a store for real chunks and one for copies, and the folder of the sources."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.database_url = database_url
        self.copies = folder / "copies"

    @contextmanager
    def repository(self, database_url: str | None = None) -> Iterator[cafcat.Repository]:
        """Yield a repository of this catalog, or of the catalog at another URL, over the same store."""
        home, store = self.folder / "home", self.folder / "store"
        with cafcat.open(database_url=database_url or self.database_url, home=home, store=store.as_uri()) as found:
            yield found

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Return the rows of the last query."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def write(self, folder: str, text: str = "", files: int = FILES) -> str:
        """Write a source folder with files that contain this text, and return its name."""
        for number in range(files):
            path = self.folder / "sources" / folder / f"{number // 50:03}" / f"{number:05}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{folder} {number} {text}")
        return folder

    def paths(self, folder: str, files: int = FILES) -> list[str]:
        """Return the paths that an ingest gives to the files of a source folder."""
        return [f"{folder}/{number // 50:03}/{number:05}.txt" for number in range(files)]

    @contextmanager
    def at_sources(self) -> Iterator[None]:
        """Make the folder of the sources the current folder meanwhile."""
        with contextlib.chdir(self.folder / "sources"):
            yield

    def chunk_of(self, folder: str) -> str:
        """Return the uuid of the chunk with the first file of a folder."""
        path = self.paths(folder)[0]
        statement = "SELECT uuid::text FROM chunks JOIN file_locations ON id = caf_file_id WHERE file_path = '{}'"
        return str(self.sql(statement.format(path))[0][0])

    def grow(self, rows: int) -> None:
        """Collect statistics of the present rows, then add synthetic rows."""
        for (table,) in self.sql(
            f"SELECT oid::regclass::text FROM pg_class WHERE oid IN ({_ALL}) AND relkind = 'r'"
        ):
            self.sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        self.sql("ANALYZE")
        [(first, pattern)] = self.sql(
            "SELECT max(id) + 1000, max(id) FILTER (WHERE state = 'committed') FROM chunks"
        )
        given = {"first": first, "pattern": pattern, "per_chunk": _CHUNK_FILES, "rows": rows}
        chunks = _CHUNKS.format(chunks=rows // _CHUNK_FILES, **given) if rows else ""
        self.sql(chunks)
        self.sql(_ROWS.format(**given))
        self.sql(
            f"UPDATE chunks SET state = 'committed', retired_at = NULL, live_file_count = {_CHUNK_FILES}, "
            f"file_count = {_CHUNK_FILES} WHERE id >= {first}; "
            f"SELECT setval(pg_get_serial_sequence('chunks', 'id'), (SELECT max(id) FROM chunks))"
        )

    def switch(self, state: str) -> None:
        """Give the planner the statistics of a state. States must be used in the order of STATES."""
        self.sql(_STATEMENTS[state])

"""Catalogs in both layouts of file_locations, with rows but without chunks, and unfinished changes."""

from typing import Any

import psycopg

import cafcat

__all__ = ["CHANGES", "CONTENT", "PARTITIONS", "changing", "execute", "fill", "partitions", "relations"]

PARTITIONS = 4
ROWS = """
INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, modified_at, file_path)
SELECT 1000000 + n / 100, n, n + 1, n, CASE WHEN n % 2 = 0 THEN now() END, 'folder/' || lpad(n::text, 6, '0')
FROM generate_series({first}, {last}) AS n
"""
CONTENT = "SELECT * FROM {} ORDER BY file_path"
CHANGES = [
    "INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, file_path) VALUES (7, 1, 2, 3, 'new')",
    "UPDATE file_locations SET source_id = 5 WHERE start_byte % 3 = 0",
    "UPDATE file_locations SET file_path = 'moved/' || start_byte WHERE start_byte % 5 = 0",
    "DELETE FROM file_locations WHERE start_byte % 7 = 0",
    "INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, file_path) "
    "SELECT 9, n, n, n, CASE WHEN n % 2 = 0 THEN 'folder/' || lpad(n::text, 6, '0') ELSE 'z/' || n END "
    "FROM generate_series(1, 99) AS n ON CONFLICT (file_path) DO UPDATE SET crc32c = excluded.crc32c",
]


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def relations(url: str) -> set[str]:
    return {
        row[0] for row in execute(url, "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")
    }


def partitions(url: str) -> int:
    return int(execute(url, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'file_locations'::regclass")[0][0])


def fill(url: str, first: int = 0, last: int = 4999) -> None:
    execute(url, ROWS.format(first=first, last=last))


def changing(url: str, phase: str, blocks: int = 1) -> cafcat.Repository:
    """Return a repository whose change to partitions has reached a phase."""
    repository = cafcat.open(database_url=url)
    layout = repository.session.catalog.layout
    layout.begin(PARTITIONS)
    while phase != "copying" and layout.copy_batch(blocks):
        pass
    if phase == "switching":
        layout.check()
    return repository

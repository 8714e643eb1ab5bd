"""The tables of a snapshot file, which is an SQLite database.

docs/snapshots.md describes these tables for other programs.
"""

from typing import Final, NamedTuple

__all__ = ["APPLICATION_ID", "READ_VERSIONS", "TABLES", "VERSION", "SnapshotInfo"]

APPLICATION_ID: Final = int.from_bytes(b"cafs")
"""Application id in the header of the file: it distinguishes snapshots from other SQLite databases."""
VERSION: Final = 2
"""Version of these tables: user_version in the header of the file."""
READ_VERSIONS: Final = (1, VERSION)
"""Versions that can be read. Version 1 has no columns for files that have to be decoded."""

TABLES: Final = (
    """
CREATE TABLE snapshot (
    made_at TEXT NOT NULL,         -- the moment, ISO 8601 in UTC
    prefix TEXT NOT NULL,          -- folder or file in the snapshot; empty: everything
    files INTEGER NOT NULL,        -- rows of files
    bytes INTEGER NOT NULL,        -- sum of their sizes
    journal_id INTEGER,            -- the last change of the catalog that is in it: journal.id
    journal_uuid TEXT,             -- journal.uuid of that: no other catalog has it
    cafcat_version TEXT NOT NULL   -- of the program that wrote this file
)""",
    """
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY,        -- as chunks.id in the catalog
    uuid TEXT NOT NULL,
    format TEXT NOT NULL,          -- caf, car, chunkio, ...
    store TEXT NOT NULL,           -- URL of the store
    object_key TEXT NOT NULL,      -- in that store
    size_bytes INTEGER NOT NULL,   -- of the whole object
    crc64nvme TEXT                 -- of the whole object, base64
)""",
    """
CREATE TABLE copies (
    chunk INTEGER NOT NULL,        -- chunks.id
    store TEXT NOT NULL,           -- URL of a further store that has it
    object_key TEXT NOT NULL,      -- there
    PRIMARY KEY (chunk, store)
) WITHOUT ROWID""",
    """
CREATE TABLE files (
    file_path TEXT NOT NULL PRIMARY KEY,
    chunk INTEGER NOT NULL,        -- chunks.id
    start_byte INTEGER NOT NULL,   -- in the chunk
    end_byte INTEGER NOT NULL,     -- one past the last
    crc32c INTEGER NOT NULL,       -- of the content, unsigned
    modified_at INTEGER,           -- microseconds since 1970 UTC
    content_bytes INTEGER,         -- size of the file; NULL: end_byte - start_byte
    decoding TEXT                  -- how the chunk's format makes the file of the bytes; NULL: they are it
) WITHOUT ROWID""",
)


class SnapshotInfo(NamedTuple):
    """When a snapshot was made, and its totals: the row of its table `snapshot`.

    Attributes:
        made_at: The moment whose locations the snapshot has: ISO 8601, UTC.
        prefix: The folder or file that was requested, without a slash at its end; "" for all files.
        files: Number of files.
        size_bytes: Total size of these files in bytes.
        journal_id: journal.id of the last change of the catalog that the snapshot includes; None if there was none.
        journal_uuid: journal.uuid of that change; None if there was none.
        cafcat_version: Version of the program that wrote the snapshot.
    """

    made_at: str
    prefix: str
    files: int
    size_bytes: int
    journal_id: int | None
    journal_uuid: str | None
    cafcat_version: str

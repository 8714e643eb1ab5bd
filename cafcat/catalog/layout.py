"""The two layouts of file_locations: one plain table, or a table of partitions by a hash of the path.

Both layouts have the same columns, constraints and answers, and the same schema revision. A path is in the
partition that the hash of its bytes selects. So a look-up reads one partition, and a listing merges all of them.
"""

from typing import Any, Final

import psycopg
from psycopg import sql

from cafcat.catalog.ops_views import create_views
from cafcat.errors import InvalidInput

__all__ = [
    "LEAST_PARTITIONS",
    "MOST_PARTITIONS",
    "check_partitions",
    "create_target",
    "described",
    "drop_former",
    "partition_count",
    "partition_empty",
    "partitions_of",
    "rename_target",
]

LEAST_PARTITIONS: Final = 2
MOST_PARTITIONS: Final = 1024
_RANGE_PAGES: Final = 32
"""Pages that one entry of the BRIN index of a partition describes. The plain table has PostgreSQL's 128.

The files of a chunk are spread over all partitions. With 128 pages, the files of a chunk of 10,000 would be read
from 16 partitions in 11 ms, with 32 in 3.6 ms, with 8 in 2.4 ms; from the plain table in 3.1 ms. Smaller ranges
make the index larger: with 32 it has 440,000 entries for 10^9 rows.
"""
_IS_PARTITIONED: Final = "SELECT relkind = 'p' FROM pg_class WHERE oid = 'file_locations'::regclass"
_PARTITIONS: Final = """
SELECT c.relname::text FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = 'file_locations'::regclass ORDER BY c.oid
"""
_GRANTS: Final = """
SELECT CASE WHEN grantee = 0 THEN NULL ELSE pg_get_userbyid(grantee)::text END, privilege_type::text, is_grantable
FROM pg_class, aclexplode(relacl) WHERE oid = 'file_locations'::regclass AND grantee <> relowner
"""
_COMMENT: Final = "SELECT obj_description('file_locations'::regclass, 'pg_class')"
_STORAGE: Final = """
SELECT array_to_string(reloptions, ', ') FROM pg_class
WHERE oid = coalesce((SELECT min(inhrelid::oid) FROM pg_inherits WHERE inhparent = 'file_locations'::regclass),
                     'file_locations'::regclass)
"""
_INDEXES: Final = ("pkey", "caf_file_id_idx", "ingest_run_id_idx", "current_since_idx")
"""Indexes of file_locations, by the ends of their names."""
_Connection = psycopg.Connection[Any]


def described(partitions: int) -> str:
    """Return a text for a layout: "a plain table" or "16 partitions"."""
    return f"{partitions} partitions" if partitions else "a plain table"


def check_partitions(partitions: int) -> None:
    """Raise InvalidInput unless file_locations can have this number of partitions; 0 stands for a plain table."""
    if partitions and not LEAST_PARTITIONS <= partitions <= MOST_PARTITIONS:
        raise InvalidInput(
            f"the number of partitions must be from {LEAST_PARTITIONS} to {MOST_PARTITIONS}, not {partitions}"
        )


def is_partitioned(connection: _Connection) -> bool:
    """Return True if file_locations has partitions. Costs one query that reads one row."""
    row = connection.execute(_IS_PARTITIONED).fetchone()
    return row is not None and bool(row[0])


def partitions_of(connection: _Connection) -> list[str]:
    """Return the names of the partitions of file_locations; an empty list for the plain table."""
    return [str(row[0]) for row in connection.execute(_PARTITIONS).fetchall()]


def partition_count(connection: _Connection) -> int:
    """Return the number of partitions of file_locations; 0 for the plain table."""
    return len(partitions_of(connection))


def create_target(connection: _Connection, partitions: int) -> None:
    """Create the empty table file_locations_new in a layout, in the open transaction.

    It has the columns, constraints, indexes, comments, owner and permissions of file_locations.

    Args:
        connection: A connection with an open transaction, whose role owns file_locations.
        partitions: Number of partitions; 0 for a plain table.
    """
    like = "(LIKE file_locations INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE INCLUDING COMMENTS)"
    storage = _with_storage(connection)
    by_hash = " PARTITION BY HASH (file_path)" if partitions else storage
    connection.execute(f"CREATE TABLE file_locations_new {like}{by_hash}".encode())
    tables = ["file_locations_new"]
    for number in range(partitions):
        tables.append(_add_partition(connection, partitions, number, storage))
    pages = f", pages_per_range = {_RANGE_PAGES}" if partitions else ""
    connection.execute(
        "ALTER TABLE file_locations_new ADD CONSTRAINT file_locations_new_pkey PRIMARY KEY (file_path); "
        "CREATE INDEX file_locations_new_caf_file_id_idx ON file_locations_new "
        f"USING brin (caf_file_id int8_minmax_multi_ops) WITH (autosummarize = on{pages}); "
        "CREATE INDEX file_locations_new_ingest_run_id_idx ON file_locations_new (ingest_run_id) "
        "WHERE ingest_run_id IS NOT NULL; "
        "CREATE INDEX file_locations_new_current_since_idx ON file_locations_new (current_since) "
        "WHERE current_since IS NOT NULL".encode()
    )
    _copy_comment(connection)
    _copy_grants(connection, tables)


def _with_storage(connection: _Connection) -> str:
    """Return the clause with the storage parameters of the present table, or of its partitions."""
    row = connection.execute(_STORAGE).fetchone()
    return f" WITH ({row[0]})" if row and row[0] else ""


def _add_partition(connection: _Connection, partitions: int, number: int, storage: str) -> str:
    # The name has the number of partitions: two layouts exist side by side while one is changed into the other.
    name = f"file_locations_p{partitions}_{number}"
    connection.execute(
        f"CREATE TABLE {name} PARTITION OF file_locations_new "
        f"FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number}){storage}; "
        f"COMMENT ON TABLE {name} IS 'Partition of file_locations: paths whose hash has the remainder {number}.'"
        "".encode()
    )
    return name


def _copy_comment(connection: _Connection) -> None:
    row = connection.execute(_COMMENT).fetchone()
    comment = sql.Literal(row[0] if row else None)
    connection.execute(sql.SQL("COMMENT ON TABLE file_locations_new IS {}").format(comment))


def _copy_grants(connection: _Connection, tables: list[str]) -> None:
    """Grant the permissions on file_locations for the new tables, too: `rm` deletes directly from partitions."""
    names = sql.SQL(", ").join(map(sql.Identifier, tables))
    for grantee, privilege, is_grantable in connection.execute(_GRANTS).fetchall():
        role = sql.SQL("PUBLIC") if grantee is None else sql.Identifier(grantee)
        option = sql.SQL(" WITH GRANT OPTION" if is_grantable else "")
        grant = sql.SQL("GRANT {} ON {} TO {}{}").format(sql.SQL(privilege), names, role, option)
        connection.execute(grant)


def rename_target(connection: _Connection) -> None:
    """Rename file_locations to file_locations_old, and file_locations_new to file_locations, with their indexes.

    The views of cafcat_ops then refer to the new table, so that the former one can be dropped.
    """
    for before, after in (("file_locations", "file_locations_old"), ("file_locations_new", "file_locations")):
        connection.execute(f"ALTER TABLE {before} RENAME TO {after}".encode())
        for index in _INDEXES:
            connection.execute(f"ALTER INDEX {before}_{index} RENAME TO {after}_{index}".encode())
    create_views(connection)


def drop_former(connection: _Connection) -> None:
    """Drop file_locations_old, the table in the former layout, with its partitions."""
    connection.execute("DROP TABLE IF EXISTS file_locations_old")


def partition_empty(connection: _Connection, partitions: int) -> None:
    """Give an empty file_locations another layout, in the open transaction.

    Raises:
        InvalidInput: The table has rows.
    """
    connection.execute("LOCK TABLE file_locations IN ACCESS EXCLUSIVE MODE")
    [(is_filled,)] = connection.execute("SELECT EXISTS (SELECT FROM file_locations)").fetchall()
    if is_filled:
        raise InvalidInput(
            f"the catalog has files, in {described(partition_count(connection))}",
            hint=f"`cafcat db partition {partitions}` changes the layout while the catalog is in use",
        )
    create_target(connection, partitions)
    rename_target(connection)
    drop_former(connection)

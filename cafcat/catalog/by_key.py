"""SQL whose plan does not depend on statistics: each row of a small table looks up its rows of a large one by key.

For a join, `IN (SELECT …)` and `EXISTS`, the planner chooses which side is read first and how often. It decides by
statistics, which are missing or outdated right after the commit of a large transaction. Then a look-up of a few
thousand paths becomes a scan of the whole catalog, or even one such scan for every path. `OFFSET 0` prevents that:
PostgreSQL merges only subqueries without LIMIT or OFFSET into the outer query. A subquery with `OFFSET 0` runs once
for each row of the small side.
"""

from typing import Final

__all__ = ["BY_INDEX", "IN_ORDER", "NOT_BY_INDEX", "delete_by_key", "exists_by_key", "join_by_key"]

BY_INDEX: Final = "SET LOCAL enable_seqscan = off; SET LOCAL jit = off"
"""Settings of a transaction for look-ups of a key that is not unique, such as a range of paths or one chunk's rows.

The planner can only estimate from statistics how many rows such a key has. If they suggest "nearly all", it would
scan the whole table. JIT is off because up to PostgreSQL 17 an unavoidable scan, such as that of a temporary table,
then gets a very high cost. The server would compile the statement for that cost, which takes up to a second.
"""
IN_ORDER: Final = "SET LOCAL enable_sort = off"
"""Read an index in its order. With wrong statistics, the server would sort all rows of a range to return a few."""
NOT_BY_INDEX: Final = "SET LOCAL enable_seqscan TO DEFAULT; SET LOCAL jit TO DEFAULT"
"""Undo BY_INDEX within the same transaction."""


def join_by_key(path: str, table: str = "file_locations", columns: str = "*") -> str:
    """Return a join for the end of a FROM list. It adds the rows of a table with a given path, under the alias `l`.

    Args:
        path: SQL expression of the path.
        table: Table with the column file_path.
        columns: Columns of the table that `l` has.
    """
    return f"CROSS JOIN LATERAL (SELECT {columns} FROM {table} WHERE file_path = {path} OFFSET 0) AS l"  # noqa: S608


def exists_by_key(table: str, small: str, condition: str = "true") -> str:
    """Return an SQL condition that is true if a table has a row with the path of the current row of another table.

    Args:
        table: Table with the column file_path.
        small: Alias of the row whose path is looked up.
        condition: Further condition on the found row, whose alias is `there`.
    """
    rows = f"SELECT * FROM {table} WHERE file_path = {small}.file_path OFFSET 0"  # noqa: S608
    return f"EXISTS (SELECT FROM ({rows}) AS there WHERE {condition} OFFSET 0)"


def delete_by_key(table: str, keys: str) -> str:
    """Return a DELETE of rows that are found by key.

    SQL cannot fix the join order of a DELETE. Therefore a subquery finds the rows first, and the DELETE names them
    by their ctid. The ctids do not change meanwhile, because the caller holds the lock on file_locations. The
    server needs 6 bytes of memory for each row.

    Args:
        table: Table to delete from. It must not have partitions: a ctid is unique only within one of them.
        keys: FROM item that gives the rows to delete, with their column ctid, under the alias `l`.
    """
    rows = f"SELECT l.ctid FROM {keys}"  # noqa: S608
    return f"DELETE FROM {table} WHERE ctid = ANY (ARRAY({rows}))"  # noqa: S608

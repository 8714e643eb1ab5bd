"""SQL whose plan does not depend on statistics: rows of large tables are looked up by key, from the small side.

A join, `IN (SELECT …)` and `EXISTS` leave it to the planner which side is read first and how often. The planner
decides by statistics, which are missing or outdated whenever a large transaction was committed a moment ago. Then
a look-up of a few thousand paths becomes a scan of the whole catalog, or of the whole catalog for every path.
`OFFSET 0` keeps a subquery as it is written (PostgreSQL merges subqueries without LIMIT or OFFSET into the outer
query): it runs once for each row of the small side.
"""

from typing import Final

__all__ = ["BY_INDEX", "NOT_BY_INDEX", "delete_by_key", "found_by_key", "is_in"]

BY_INDEX: Final = "SET LOCAL enable_seqscan = off; SET LOCAL jit = off"
"""For statements that look up a range of paths, the rows of a chunk, or another key that is not unique. The planner
only has statistics to tell how many rows such a key has; where they show "nearly all", it would scan the table. Up
to PostgreSQL 17 a scan that cannot be avoided, as that of a temporary table, then has a cost so high that the
server would compile the statement, which takes up to a second."""
NOT_BY_INDEX: Final = "SET LOCAL enable_seqscan TO DEFAULT; SET LOCAL jit TO DEFAULT"


def found_by_key(path: str, table: str = "file_locations", columns: str = "*") -> str:
    """Return a join for the end of a FROM list, which gives as `l` the rows of the table with this path."""
    return f"CROSS JOIN LATERAL (SELECT {columns} FROM {table} WHERE file_path = {path} OFFSET 0) AS l"  # noqa: S608


def is_in(table: str, small: str, condition: str = "true") -> str:
    """Return a condition: the table has a row, called `there`, with the path of a row of `small`."""
    rows = f"SELECT * FROM {table} WHERE file_path = {small}.file_path OFFSET 0"  # noqa: S608
    return f"EXISTS (SELECT FROM ({rows}) AS there WHERE {condition} OFFSET 0)"


def delete_by_key(table: str, keys: str) -> str:
    """Return a DELETE of the rows with these keys. keys: a FROM item that gives the rows as `l`.

    DELETE has no ON CONFLICT, and its join has no order that SQL could fix. So the rows are found first, and named
    by their ctid, which the caller keeps from changing: it holds the lock on file_locations. The server needs 6
    bytes of memory for each of them.
    """
    rows = f"SELECT l.ctid FROM {keys}"  # noqa: S608
    return f"DELETE FROM {table} WHERE ctid = ANY (ARRAY({rows}))"  # noqa: S608

"""Plans of the statements that ran, as PostgreSQL's auto_explain sends them, and the rows that each plan read.

`with_plans` makes a database URL whose sessions send every plan to the client. `collected` keeps the plans that
this process receives. `excesses` lists the table scans that read more rows than a verb may read.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from cafcat.catalog.connection import PgConnection

__all__ = [
    "BIG_TABLES",
    "Limits",
    "Plan",
    "Scan",
    "collected",
    "excesses",
    "explained",
    "has_auto_explain",
    "with_plans",
]

BIG_TABLES = frozenset({"file_locations", "retired_locations", "journal_files", "ingestion_units"})
"""The tables that grow with the number of files."""

_OPTIONS = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "info",  # the only level that reaches the client whatever client_min_messages is
}
_EXPLAIN = "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) "
_EXPLAINABLE = re.compile(
    r"\s*(?:COPY\s*\((?P<copied>.*)\)\s*TO STDOUT.*|(?P<plain>(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b.*))\Z",
    re.S | re.I,
)
_PARTITION = re.compile(r"file_locations_p\d+_\d+")
_REMOVED = ("Rows Removed by Filter", "Rows Removed by Index Recheck", "Rows Removed by Join Filter")


_Connection = psycopg.Connection[Any]


class Scan(NamedTuple):
    """One node of a plan that reads a table. rows: read in all loops, including those that a filter removed."""

    table: str
    node: str
    loops: int
    rows: float


class Limits(NamedTuple):
    """Limits of one scan in a plan. brin_rows: rows of a scan of whole pages that an index selects."""

    loops: int
    rows: int
    brin_rows: int


class Plan(NamedTuple):
    """A statement that ran, and its plan."""

    statement: str
    root: Mapping[str, Any]

    def scans(self) -> Iterator[Scan]:
        """Yield the nodes that read tables of the catalog."""
        for node in _nodes(self.root):
            name, loops = node.get("Relation Name"), node["Actual Loops"]
            # An index recheck removes rows above the heap scan, which counts them.
            removed = sum(node.get(key, 0) for key in _REMOVED[:2])
            if name and node["Node Type"] != "ModifyTable":
                name = "file_locations" if _PARTITION.fullmatch(name) else name
                yield Scan(name, node["Node Type"], loops, (node["Actual Rows"] + removed) * loops)

    def __str__(self) -> str:
        return f"{' '.join(self.statement.split())}\n{_drawn(self.root)}"


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _drawn(node: Mapping[str, Any], depth: int = 1) -> str:
    """Return the tree in lines, as psql shows a plan."""
    of = node.get("Index Name") or node.get("Relation Name") or ""
    table = f" on {node['Relation Name']}" if "Index Name" in node and "Relation Name" in node else ""
    removed = "".join(f", {key.lower()} {node[key]}" for key in _REMOVED if node.get(key))
    line = (
        f"{'  ' * depth}{node['Node Type']} {of}{table} (rows {node['Actual Rows']}, loops {node['Actual Loops']}"
    )
    lines = [f"{line}{removed}; planned {node['Plan Rows']})"]
    return "\n".join(lines + [_drawn(child, depth + 1) for child in node.get("Plans", ())])


def has_auto_explain(conninfo: str) -> bool:
    """Return True if the server has the module, and the role may load it."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        try:
            connection.execute("LOAD 'auto_explain'")
        except (pg.UndefinedFile, pg.InsufficientPrivilege):
            return False
    return True


def with_plans(url: str) -> str:
    """Return the URL of the same database, for sessions that send the plan of every statement to their client."""
    options = " ".join(f"-c {name}={value}" for name, value in _OPTIONS.items())
    keywords = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    return psycopg.conninfo.make_conninfo("", **keywords | {"options": options})


@contextlib.contextmanager
def collected() -> Iterator[list[Plan]]:
    """Yield a list that gets the plans of connections which are opened meanwhile (`with_plans`), in order."""
    plans: list[Plan] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        head, _, text = (notice.message_primary or "").partition("plan:\n")
        if head.startswith("duration:"):
            found = json.loads(text)
            plans.append(Plan(found["Query Text"], found["Plan"]))

    with _connections(lambda connection: connection.add_notice_handler(note)):
        yield plans


@contextlib.contextmanager
def explained() -> Iterator[list[Plan]]:
    """Yield a list of plans from a server without auto_explain.

    Each statement is run under EXPLAIN first, and the effects of that run are undone.
    """
    plans: list[Plan] = []

    def explain(connection: _Connection, query: Any, parameters: Any) -> None:
        if isinstance(query, psycopg.sql.Composable):
            query = query.as_string(connection)
        text = query if isinstance(query, str) else bytes(query).decode()
        if found := _EXPLAINABLE.match(text):
            statement = found["copied"] or found["plain"]
            plans.extend(Plan(statement, root) for root in _explain(connection, statement, parameters))

    class Cursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            explain(self.connection, query, params)
            return super().execute(query, params, **options)

        def copy(self, statement: Any, params: Any = None, **options: Any) -> Any:
            explain(self.connection, statement, params)
            return super().copy(statement, params, **options)

    class ServerCursor(psycopg.ServerCursor[Any]):
        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            explain(self.connection, query, params)
            return super().execute(query, params, **options)

    def prepare(connection: _Connection) -> None:
        connection.cursor_factory, connection.server_cursor_factory = Cursor, ServerCursor

    with _connections(prepare):
        yield plans


def _explain(connection: _Connection, statement: str, parameters: Any) -> list[Any]:
    """Return the plan of a statement whose effects are undone; an empty list if the statement fails."""
    is_idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    begin, end = ("BEGIN", "ROLLBACK") if is_idle else ("SAVEPOINT explained", "ROLLBACK TO SAVEPOINT explained")
    cursor = psycopg.Cursor(connection)
    cursor.execute(begin.encode(), prepare=False)
    try:
        cursor.execute((_EXPLAIN + statement).encode(), parameters, prepare=False)
        [(found,)] = cursor.fetchall()
        return [found[0]["Plan"]]
    except psycopg.Error:
        return []
    finally:
        cursor.execute(end.encode(), prepare=False)


@contextlib.contextmanager
def _connections(prepare: Callable[[_Connection], object]) -> Iterator[None]:
    """Call `prepare` with each connection that cafcat opens meanwhile."""
    connect = PgConnection.connect

    def connect_prepared(*arguments: Any, **keywords: Any) -> _Connection:
        connection: _Connection = connect(*arguments, **keywords)
        prepare(connection)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PgConnection, "connect", connect_prepared)
        yield


def excesses(plans: Sequence[Plan], limits: Limits) -> list[str]:
    """Return the scans that read a whole big table, or that run more often than once for each row of the verb."""
    found = []
    for plan in plans:
        for scan in plan.scans():
            most = limits.brin_rows if scan.node == "Bitmap Heap Scan" else limits.rows
            if scan.table in BIG_TABLES and (scan.rows > most or scan.loops > limits.loops):
                read = (
                    f"{scan.rows:,.0f} rows (at most {most:,}) in {scan.loops:,} loops (at most {limits.loops:,})"
                )
                found.append(f"{scan.node} on {scan.table}: {read}: {plan}")
    return found

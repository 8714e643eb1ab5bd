"""Queries of the pages that show the views and functions of the schema cafcat_ops as tables, page by page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from psycopg import sql

from cafcat.catalog.console.reading import PageQueries, Row
from cafcat.catalog.ops_views import SCHEMA

__all__ = ["VIEWS", "Place", "View", "all_rows", "comments", "view_page"]


@dataclass(frozen=True, slots=True)
class View:
    """A view, or a function that returns a table.

    Attributes:
        name: Its name in the schema.
        key: Column that is different in each row.
        sorts: SQL types of the columns by which rows can be sorted without reading more than the view has to read.
            The first one is the default.
        filters: SQL types of the columns that a query must select by, because no index serves other queries.
        arguments: SQL types of the arguments of a function, by their names; empty for a view.
        defaults: Values of filters that need not be given.
        table: Table with the key of each row of a large view. Pages read the keys there first, so that the planner
            cannot begin with another table. None: pages read the view.
        descending: True if the default is the largest first.
        is_whole: True if every query reads the rows of all files, so that the console only shows the command.
    """

    name: str
    key: str
    sorts: Mapping[str, str]
    filters: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    descending: bool = False
    is_whole: bool = False

    @property
    def parameters(self) -> Mapping[str, str]:
        """SQL types of everything that a query needs, by name."""
        return {**self.arguments, **self.filters}


class Place(NamedTuple):
    """The order of a table, and the row after which a page begins.

    Attributes:
        sort: Column of the order.
        descending: True for the largest first. Rows without a value come last in both orders.
        key: The key of that row, as text; None for the first page.
        value: Its value in the column of the order, as text; None if it has none.
    """

    sort: str
    descending: bool
    key: str | None = None
    value: str | None = None


_OF_CHUNKS: Final = {"committed_at": "timestamptz", "size_bytes": "bigint", "store": "text"}

VIEWS: Final[Mapping[str, View]] = {
    view.name: view
    for view in (
        View("files", "file_path", {"file_path": "text"}, table="file_locations"),
        View("file_history", "current_since", {"current_since": "timestamptz"}, filters={"file_path": "text"}),
        View(
            "folders",
            "folder_path",
            {"folder_path": "text"},
            filters={"depth": "integer"},
            defaults={"depth": "1"},
        ),
        View("runs", "run_id", {"run_id": "bigint"}, descending=True),
        View(
            "chunk_health",
            "chunk",
            _OF_CHUNKS | {"dead_bytes": "bigint", "live_percent": "numeric", "live_files": "bigint"},
            descending=True,
        ),
        View("unverified", "chunk", _OF_CHUNKS | {"live_files": "bigint"}, descending=True),
        View("single_copy", "chunk", _OF_CHUNKS | {"live_files": "bigint"}, descending=True),
        View("growth_by_day", "day", {"day": "date"}, descending=True),
        View("writers", "object_key", {"begun_at": "timestamptz", "lease_expires_at": "timestamptz"}),
        View("duplicates", "first_path", {"repeated_bytes": "bigint"}, is_whole=True),
        View("lost_with", "file_path", {"file_path": "text"}, arguments={"chunk": "uuid"}),
        View(
            "changes_between",
            "file_path",
            {"file_path": "text"},
            arguments={"first_run": "bigint", "last_run": "bigint"},
        ),
    )
}
"""All views and functions that the console shows, by name."""

_BY_KEY: Final = """
SELECT found.* FROM (SELECT {key} AS page_key FROM {table} {rest}) AS page
CROSS JOIN LATERAL (SELECT * FROM {view} WHERE {key} = page.page_key OFFSET 0) AS found
ORDER BY {order}
"""
_VIEW_COMMENTS: Final = """
SELECT NULL AS name, obj_description(c.oid, 'pg_class') AS comment FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace(%(schema)s) AND c.relname = %(name)s
UNION ALL
SELECT NULL, obj_description(p.oid, 'pg_proc') FROM pg_proc AS p
WHERE p.pronamespace = to_regnamespace(%(schema)s) AND p.proname = %(name)s
UNION ALL
SELECT a.attname, col_description(a.attrelid, a.attnum)
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = to_regnamespace(%(schema)s) AND c.relname = %(name)s AND a.attnum > 0 AND NOT a.attisdropped
"""


def view_page(
    queries: PageQueries, view: View, values: Mapping[str, str], place: Place, limit: int
) -> Sequence[Row]:
    """Return rows of a view in an order.

    Args:
        queries: Runs the query.
        view: The view.
        values: Values of its parameters, as text.
        place: The order, by a column of `view.sorts`, and where the page begins.
        limit: Most rows.
    """
    conditions = _all_of([*_filters(view, values), *_after(view, place)])
    rest = sql.SQL("WHERE {} ORDER BY {} LIMIT {}").format(conditions, _order(view, place), sql.Literal(limit))
    if view.table is None:
        return queries.composed(sql.SQL("SELECT * FROM {} {}").format(_source(view, values), rest))
    statement = sql.SQL(_BY_KEY).format(
        key=sql.Identifier(view.key),
        table=sql.Identifier(view.table),
        rest=rest,
        view=_source(view, values),
        order=_order(view, place),
    )
    return queries.composed(statement)


def all_rows(queries: PageQueries, view: View, values: Mapping[str, str], place: Place) -> Iterator[Sequence[Any]]:
    """Yield the names of the columns, and then all rows of a view, as text, on a connection of its own.

    Args:
        queries: Runs the query.
        view: The view.
        values: Values of its parameters, as text.
        place: The order. The rows begin with the first one.
    """
    statement = sql.SQL("SELECT * FROM {} WHERE {} ORDER BY {}").format(
        _source(view, values), _all_of(_filters(view, values)), _order(view, place)
    )
    return queries.stream(statement)


def comments(queries: PageQueries, view: View) -> Mapping[str | None, str]:
    """Return the comments of a view's columns in the catalog by their names, and that of the view under None."""
    rows = queries.rows(_VIEW_COMMENTS, {"schema": SCHEMA, "name": view.name})
    return {row["name"]: row["comment"] for row in rows if row["comment"] is not None}


def _source(view: View, values: Mapping[str, str]) -> sql.Composable:
    name = sql.Identifier(SCHEMA, view.name)
    if not view.arguments:
        return name
    given = [_typed(values[argument], kind) for argument, kind in view.arguments.items()]
    # OFFSET 0: else the planner could read the paths of all files, in order, for the rows of one chunk.
    return sql.SQL("(SELECT * FROM {}({}) OFFSET 0) AS found").format(name, sql.SQL(", ").join(given))


def _filters(view: View, values: Mapping[str, str]) -> list[sql.Composable]:
    return [
        sql.SQL("{} = {}").format(sql.Identifier(column), _typed(values[column], kind))
        for column, kind in view.filters.items()
    ]


def _all_of(conditions: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL(" AND ").join(conditions or [sql.SQL("true")])


def _order(view: View, place: Place) -> sql.Composable:
    """Return the columns of ORDER BY. The key comes last, so that equal values have an order, too."""
    direction = sql.SQL("DESC" if place.descending else "ASC")
    order = sql.SQL("{} {}").format(sql.Identifier(place.sort), direction)
    if place.sort == view.key:
        return order
    return sql.SQL('{} NULLS LAST, {}::text COLLATE "C"').format(order, sql.Identifier(view.key))


def _after(view: View, place: Place) -> list[sql.Composable]:
    """Return the condition for the rows after the one where the last page ended; empty for the first page."""
    if place.key is None:
        return []
    column, kind = sql.Identifier(place.sort), view.sorts[place.sort]
    if place.sort == view.key:
        sign = sql.SQL("<" if place.descending else ">")
        return [sql.SQL("{} {} {}").format(column, sign, _typed(place.key, kind))]
    key, last = sql.Identifier(view.key), sql.Literal(place.key)
    if place.value is None:
        return [sql.SQL('({} IS NULL AND {}::text COLLATE "C" > {})').format(column, key, last)]
    value, sign = _typed(place.value, kind), sql.SQL("<" if place.descending else ">")
    form = sql.SQL('({0} {1} {2} OR ({0} = {2} AND {3}::text COLLATE "C" > {4}) OR {0} IS NULL)')
    return [form.format(column, sign, value, key, last)]


def _typed(value: str, kind: str) -> sql.Composable:
    return sql.SQL("CAST({} AS {})").format(sql.Literal(value), sql.SQL(kind))

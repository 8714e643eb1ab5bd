"""The command `cafcat sql`: its flags and output."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from math import isfinite
from typing import Annotated, Any

import typer

from cafcat.catalog.user_query import JsonText, Numeric
from cafcat.cli.call import Call, verb
from cafcat.cli.output import printable
from cafcat.errors import InvalidInput, Unsupported
from cafcat.support.arguments import parse_text

__all__ = ["register", "show_rows"]

ROWS_MEASURED = 200
"""Number of rows at the start of a result whose values set the widths of the columns. Later rows are not kept in
memory."""


def sql(
    call: Call,
    query: Annotated[
        str | None,
        typer.Option(
            "--command",
            "-c",
            metavar="QUERY",
            parser=parse_text,
            help="Run this SELECT, VALUES, TABLE or WITH query, and print the rows.",
        ),
    ] = None,
) -> None:
    """Open psql on the catalog, or run one read-only query.

    Example: cafcat sql -c "SELECT state, count(*) FROM chunks GROUP BY 1"
    """
    if query is None:
        _open_psql(call)
        return
    with call.files() as repository:
        show_rows(call, *repository.query(query))


def show_rows(call: Call, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Print the rows of a query: as a table, or with --json as one document per row.

    Raises:
        InvalidInput: With --json, two columns have the same name.
    """
    if not call.json:
        for line in _table(columns, rows):
            call.output.line(line)
        return
    _check_names(columns)
    for row in rows:
        call.output.document(dict(zip(columns, map(_json_value, row), strict=True)))


def _json_value(value: Any) -> Any:
    """Return a value of a row as JSON value. Numbers are JSON numbers; NaN and Infinity, which JSON lacks, text."""
    if isinstance(value, JsonText):
        return json.loads(value)
    if not isinstance(value, Numeric) or not isfinite(float(value)):
        return value
    return int(value) if value.lstrip("-").isdecimal() else float(value)


def _check_names(columns: Sequence[str]) -> None:
    """Raise InvalidInput if two columns of a query have the same name: a JSON document has one value per key."""
    for name in columns:
        if columns.count(name) > 1:
            raise InvalidInput(f"two columns have the name {name!r}", hint="give each column its own name with AS")


def _open_psql(call: Call) -> None:
    if call.json:
        raise InvalidInput("--json needs a query, because psql prints no JSON", hint="give the query with -c")
    command, environment = call.database().psql()
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - psql replaces this process on the terminal
    except FileNotFoundError as error:
        raise Unsupported(f"{command[0]} is not installed", hint="install it, or run one query with -c") from error


def _table(columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    texts = ([_cell(value) for value in row] for row in rows)
    first = list(islice(texts, ROWS_MEASURED))
    if not columns:
        return
    widths = [max(map(len, column)) for column in zip(columns, *first, strict=True)]
    yield _row(columns, widths)
    yield _row(["-" * width for width in widths], widths)
    for row in chain(first, texts):
        yield _row(row, widths)


def _row(cells: Iterable[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cell(value: Any) -> str:
    """Return a value of a row as text in one line. As in psql, NULL is "", and booleans are "t" or "f"."""
    if isinstance(value, bool):
        return "t" if value else "f"
    return "" if value is None else printable(str(value))


def register(app: typer.Typer) -> None:
    """Add `cafcat sql` to the commands of the program."""
    verb(app, "sql", sql, hints={"": "give the query with -c: `cafcat sql -c QUERY`"})

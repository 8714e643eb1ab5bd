"""The list of the SQL views, and one of them as a table that can be sorted and saved as CSV."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cafcat.catalog.console.views import VIEWS, Place, View, all_rows, comments, view_page
from cafcat.errors import NotFound
from cafcat.serve.console.csv_rows import csv_blocks
from cafcat.serve.console.page import Content, Page, Visit
from cafcat.serve.failures import BadRequest
from cafcat.support.shell import shell_name

__all__ = ["PAGE", "VIEW_PAGE", "csv_of"]

_ROWS: Final = 100
"""Rows of one page."""
_LONGEST: Final = 200
"""Most characters of one value in a table; CSV has all of them."""


def views(visit: Visit) -> Content:
    """Return all views with their comments."""
    return {"views": [(view, comments(visit.queries, view).get(None, "")) for view in VIEWS.values()]}


def view(visit: Visit) -> Content:
    """Return one page of a view."""
    found = view_of(visit)
    described = comments(visit.queries, found)
    values = values_of(visit, found)
    content: Content = {
        "title": f"cafcat_ops.{found.name}",
        "view": found,
        "comment": described.get(None, ""),
        "comments": described,
        "values": {name: visit.text(name) or found.defaults.get(name, "") for name in found.parameters},
        "rows": None,
        "more": None,
        "command": _command(found, values),
    }
    if found.is_whole or values is None:
        return content
    place = place_of(visit, found)
    rows = view_page(visit.queries, found, values, place, _ROWS + 1)
    more = None
    if len(rows) > _ROWS:
        last = rows[_ROWS - 1]
        more = {
            "key": _text(last[found.key]),
            "value": None if last[place.sort] is None else _text(last[place.sort]),
        }
    return content | {"rows": rows[:_ROWS], "more": more, "place": place, "longest": _LONGEST}


def csv_of(visit: Visit) -> tuple[str, Iterator[bytes]]:
    """Return the name of a view, and all its rows as CSV.

    Raises:
        NotFound: The console shows no such view, or the catalog has no such run.
        BadRequest: A value is missing, or the view reads all files.
        InvalidInput: The second of two runs is not the later one, or a run was rebuilt.
        CatalogUnavailable: The database does not answer.
    """
    found = view_of(visit)
    values = values_of(visit, found)
    if found.is_whole or values is None:
        raise BadRequest(400, "a value is missing, or the view is not shown")
    return found.name, csv_blocks(all_rows(visit.queries, found, values, place_of(visit, found)))


def view_of(visit: Visit) -> View:
    """Return the view that a visit is about.

    Raises:
        NotFound: The console shows no such view.
    """
    found = VIEWS.get(visit.text("name"))
    if found is None:
        raise NotFound("the console has no such view")
    return found


def values_of(visit: Visit, view: View) -> Mapping[str, str] | None:
    """Return the values that a view needs; None if one is missing.

    Raises:
        BadRequest: A value does not have the type of its column.
        NotFound: There is no run with one of the numbers, or no chunk with the UUID.
        InvalidInput: The second of two runs is not the later one, or a run was rebuilt. Or a UUID is too short, or
            fits several chunks.
    """
    values = {name: visit.text(name) or view.defaults.get(name, "") for name in view.parameters}
    if not all(values.values()):
        return None
    for name, kind in view.parameters.items():
        if kind == "uuid":
            values[name] = str(visit.chunk_uuid(name))
        elif kind in ("bigint", "integer"):
            most = (1 << 63) - 1 if kind == "bigint" else (1 << 31) - 1
            values[name] = str(min(visit.number(name, int(view.defaults.get(name, "0"))), most))
    if view.name == "changes_between":
        # only checks the runs, because no change is taken
        visit.repository.changes_between(int(values["first_run"]), int(values["last_run"]))
    return values


def place_of(visit: Visit, view: View) -> Place:
    """Return the order and the beginning of a page.

    Raises:
        BadRequest: Rows cannot be sorted by the column.
    """
    default = next(iter(view.sorts))
    sort = visit.text("sort") or default
    if sort not in view.sorts:
        raise BadRequest(400, "the table cannot be sorted by this column")
    descending = visit.text("order") == "desc" if visit.text("order") else sort == default and view.descending
    key = visit.text("key") or None
    return Place(sort, descending, key, visit.text("value") if "value" in visit.values else None)


def _text(value: Any) -> str:
    return str(value.isoformat() if hasattr(value, "isoformat") else value)


def _command(view: View, values: Mapping[str, str] | None) -> str:
    """Return the command that prints all rows of a view."""
    arguments = ", ".join(_quoted((values or {}).get(name, name.upper())) for name in view.arguments)
    call = f"({arguments})" if view.arguments else ""
    wheres = [f"{name} = {_quoted((values or {}).get(name, name.upper()))}" for name in view.filters]
    where = f" WHERE {' AND '.join(wheres)}" if wheres else ""
    before, word = shell_name(f"SELECT * FROM cafcat_ops.{view.name}{call}{where}")  # noqa: S608 - only shown
    return f"{before}cafcat sql -c {word}"


def _quoted(value: str) -> str:
    return value if value.isdigit() else "'" + value.replace("'", "''") + "'"


PAGE = Page("views", "SQL", views, in_navigation=True)
VIEW_PAGE = Page("view", "View", view)

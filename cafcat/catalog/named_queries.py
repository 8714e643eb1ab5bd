"""The queries of `cafcat query`, which are also the cookbook of docs/sql.md.

Each file in the folder `queries` is one query of the same name. Its comments come first: the question that the
query answers, a line for each parameter (`-- :name TYPE description. Example: value`), and notes.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Final, NamedTuple
from uuid import UUID

from psycopg import sql

from cafcat.errors import InvalidInput
from cafcat.support.arguments import parse_date
from cafcat.support.paths import folder_of

__all__ = ["NamedQuery", "Parameter", "named_queries"]

_PARAMETER: Final = re.compile(
    r":(\w+) (TEXT|FILE|FOLDER|LOGS|INTEGER|DAYS|RUN|RECORDED_RUN|UUID|STORE|TIME) (.+) Example: (.*)"
)
_LIMIT: Final = re.compile(r"\bLIMIT (\d+)$")
_SINCE: Final = datetime(1970, 1, 1, tzinfo=UTC)
_USE: Final = re.compile(r"(?<![:\w]):([a-z]\w*)")
_MOST_DAYS: Final = 36_500


def _folder_of_logs(typed: str) -> str:
    """Return a typed folder of log files with one slash at its end. Names of log files may begin with a slash."""
    return "" if typed in ("", ".", "./") else f"{typed.rstrip('/')}/"


def _days(typed: str) -> int:
    days = int(typed)
    if not 0 <= days <= _MOST_DAYS:
        raise ValueError
    return days


_KINDS: Final[dict[str, Callable[[str], str | int | UUID]]] = {
    "INTEGER": int,
    "DAYS": _days,
    "RUN": int,
    "RECORDED_RUN": int,
    "UUID": UUID,
    "TEXT": str,
    "FILE": str,
    "STORE": str,
    "FOLDER": folder_of,
    "LOGS": _folder_of_logs,
    "TIME": parse_date,
}
"""Kinds of parameters, each with the function that converts a value as it was typed."""
_EXPECTED: Final = {"UUID": "a UUID", "DAYS": f"a whole number from 0 to {_MOST_DAYS:,}"}
"""Descriptions of a right value, by kind. All other kinds whose conversion can fail are whole numbers."""


class Parameter(NamedTuple):
    """A parameter of a query.

    Attributes:
        name: Name in the text of the query, where a colon precedes it.
        kind: TEXT, FILE (the query has no row if there is no such file), FOLDER or LOGS (a folder of files or of
            log files; a slash at its end is added), INTEGER, DAYS (at most 100 years), RUN (number of an ingest),
            RECORDED_RUN (number of an ingest that `cafcat rebuild` did not rebuild), UUID, STORE (a URL; on the
            command line also a name or a folder) or TIME (a time that `parse_date` reads).
        help: Description.
        example: A value, as text.
    """

    name: str
    kind: str
    help: str
    example: str


class NamedQuery(NamedTuple):
    """A query with a name.

    Attributes:
        name: Name on the command line.
        question: The question that the query answers.
        parameters: Its parameters, in the order of the arguments.
        notes: Sentences about the result; "" for none.
        sql: Text of the query, with `:name` in place of each parameter.
    """

    name: str
    question: str
    parameters: Sequence[Parameter]
    notes: str
    sql: str

    def text(self, values: Sequence[str]) -> str:
        """Return the query with values in place of the parameters, quoted for SQL.

        Args:
            values: A value for each parameter, as text.

        Raises:
            InvalidInput: There are too few or too many values, one is not of its kind, or the first of two times is
                later than the second one.
        """
        if len(values) != len(self.parameters):
            wanted = " ".join(parameter.name.upper() for parameter in self.parameters) or "no arguments"
            raise InvalidInput(
                f"the query {self.name} takes {wanted}", hint=f"`cafcat query {self.name} --sql` shows it"
            )
        pairs = list(zip(self.parameters, values, strict=True))
        times = [parse_date(value) for parameter, value in pairs if parameter.kind == "TIME"]
        if times != sorted(times):
            raise InvalidInput("the query begins after it ends: its first time is later than its last time")
        literals = {parameter.name: _literal(parameter, value) for parameter, value in pairs}
        return _USE.sub(lambda use: literals[use[1]], self.sql)

    @property
    def most_rows(self) -> int | None:
        """Largest number of rows of the result; None without a limit."""
        found = _LIMIT.search(self.sql)
        return None if found is None else int(found[1])

    def example(self) -> str:
        """Return the query with the example values, as docs/sql.md has it."""
        return self.text([parameter.example for parameter in self.parameters])


def _literal(parameter: Parameter, value: str) -> str:
    try:
        typed = _KINDS[parameter.kind](value)
    except ValueError as error:
        expected = _EXPECTED.get(parameter.kind, "a whole number")
        raise InvalidInput(f"{parameter.name} must be {expected}, not {value!r}") from error
    if parameter.kind == "TIME":
        return f"timestamptz '{_SINCE + timedelta(microseconds=int(typed) // 1000)}'"
    return sql.Literal(str(typed) if isinstance(typed, UUID) else typed).as_string(None).strip()


@cache
def named_queries() -> dict[str, NamedQuery]:
    """Return all queries by their names, in the order of the names."""
    folder = resources.files("cafcat.catalog").joinpath("queries")
    files = sorted((file.name, file.read_text("utf-8")) for file in folder.iterdir() if file.name.endswith(".sql"))
    return {name.removesuffix(".sql"): _parsed(name.removesuffix(".sql"), text) for name, text in files}


def _parsed(name: str, text: str) -> NamedQuery:
    lines = text.strip().split("\n")
    comments = [line.removeprefix("-- ") for line in lines if line.startswith("-- ")]
    query = "\n".join(line for line in lines if not line.startswith("-- ")).removesuffix(";")
    parameters = [Parameter(*found.groups()) for line in comments if (found := _PARAMETER.fullmatch(line))]
    notes = [line for line in comments[1:] if not _PARAMETER.fullmatch(line)]
    return NamedQuery(name, comments[0], parameters, " ".join(notes), query)

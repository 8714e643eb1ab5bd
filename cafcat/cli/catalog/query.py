"""The command `cafcat query`: its flags and output."""

import shlex
from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.catalog.sql import show_rows
from cafcat.cli.groups import NEAR
from cafcat.cli.reading.missing_names import NO_LOGS
from cafcat.errors import InvalidInput, NotFound
from cafcat.model import NO_SUCH_PREFIX
from cafcat.support.arguments import parse_text
from cafcat.support.paths import file_of, folder_of, from_root
from cafcat.support.shell import argument

if TYPE_CHECKING:
    from cafcat.catalog.named_queries import NamedQuery
    from cafcat.packed_files import PackedFiles

__all__ = ["register"]

_IS_FILE: Final = "this is a file, not a folder"


_LACKS_BEFORE_REBUILD: Final = {
    "commands": "only a backup has earlier commands",
    "removals": "`cafcat undelete --list` has the removed files",
    "verify-runs": "only a backup has earlier verifies",
}
"""Queries whose answer lacks what was before a rebuild, each with the place of the rest."""


def query(
    call: Call,
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the query. Without it, all queries are listed.")
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGUMENT]...", parser=parse_text, help="Values of its parameters."),
    ] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print the query as SQL; do not run it.")] = False,
) -> None:
    """Answer a question about the catalog with a query that has a name. docs/sql.md explains the queries.

    Example: cafcat query lost-with 1b4e28ba
    """
    from cafcat.catalog.named_queries import named_queries

    if name is None:
        _list(call, named_queries().values())
        return
    if name not in named_queries():
        near = ", ".join(repr(query) for query in named_queries() if _is_near(name, query))
        hint = (
            f"did you mean {near}? `cafcat query` lists the queries" if near else "`cafcat query` lists the queries"
        )
        raise NotFound(f"there is no query {name!r}", hint=hint)
    chosen, values = named_queries()[name], arguments or []
    if sql:
        text = chosen.text(_looked_up(call, chosen, values)) if values else chosen.sql
        call.output.show({"sql": text}, [f"{text};"])
        return
    with call.files() as repository:
        columns, rows = repository.query(chosen.text(_values(repository, chosen, values)))
        first = list(islice(rows, chosen.most_rows or 1))
        if not first:
            _check_names(repository, chosen, values)
        show_rows(call, columns, chain(first, rows))
        if name in _LACKS_BEFORE_REBUILD and repository.session.catalog.runs.has_rebuilt():
            call.note(f"the catalog was rebuilt, and the rows before that are lost: {_LACKS_BEFORE_REBUILD[name]}")
    if len(first) == chosen.most_rows:
        command = shlex.join(["cafcat", "query", name, *values, "--sql"])
        call.note(f"the query ends after {len(first)} rows; `{command}` prints it, for more of them")


def _is_near(typed: str, name: str) -> bool:
    """Return True if a typed name is similar to the name of a query, or to its beginning: "hist", history."""
    beginning = name[: len(typed) + 1]  # "largst" is near "largest-files"
    likeness = max(SequenceMatcher(None, text, typed).ratio() for text in (name, beginning))
    return name.startswith(typed or "?") or likeness >= NEAR


def _check_names(repository: "PackedFiles", query: "NamedQuery", values: list[str]) -> None:
    """Raise NotFound if the catalog has no file or folder of such a name, or has a file in place of a folder."""
    for parameter, value in zip(query.parameters, values, strict=True):
        if parameter.kind == "FILE":
            _check_file(repository, value)
        elif parameter.kind == "FOLDER" and folder_of(value):
            _check_folder(repository, value)
        elif parameter.kind == "LOGS":
            _check_logs(repository, value)


def _check_file(repository: "PackedFiles", name: str) -> None:
    try:
        repository.session.catalog.reading.files.locate(name)
    except NotFound:
        repository.locate(name)  # its error tells a folder from an unknown name
        raise


def _check_folder(repository: "PackedFiles", name: str) -> None:
    found = [entry.path for entry in islice(repository.list_folder(name), 2)]
    if not found:
        raise NotFound(NO_SUCH_PREFIX, path=name, hint="`cafcat ls` lists the catalog")
    if found == [file_of(name)]:
        raise NotFound(_IS_FILE, path=name, hint=f"`cafcat stat {argument(name)}` shows the file")


def _check_logs(repository: "PackedFiles", name: str) -> None:
    from cafcat.logs.searching import folder_of_logs

    folder = folder_of_logs(name)
    if not folder or any(unit.log_file != folder for unit in repository.session.catalog.logs.below(folder)):
        return
    if not repository.has_logs(name):
        raise NotFound(NO_LOGS, path=name)
    raise NotFound(_IS_FILE, path=name, hint=f"`cafcat units {argument(name)}` shows the log file")


def _list(call: Call, queries: "Iterable[NamedQuery]") -> None:
    for found in queries:
        usage = " ".join([found.name, *(parameter.name.upper() for parameter in found.parameters)])
        document = {"name": found.name, "parameters": [parameter.name for parameter in found.parameters]}
        call.output.show(document | {"question": found.question}, [f"{usage:26} {found.question}"])


def _values(repository: "PackedFiles", query: "NamedQuery", values: list[str]) -> list[str]:
    """Return the values with whole UUIDs of chunks, and with URLs of stores in place of their names and folders.

    Raises:
        NotFound: There is no chunk, run or store of such a value.
        InvalidInput: Values are missing or of the wrong kind, the second of two runs is not the later one, or a run
            was rebuilt and the query needs its changes.
    """
    kinds = [parameter.kind for parameter in query.parameters]
    checks = {"RUN": repository.run, "RECORDED_RUN": repository.recorded_run}
    runs = [
        checks[kind](int(value)).id
        for kind, value in zip(kinds, values, strict=False)
        if kind in checks and _is_whole(value)
    ]
    if kinds == ["RECORDED_RUN", "RECORDED_RUN"] and len(runs) == len(kinds):
        try:
            repository.changes_between(*runs)  # only checks which run is later, because no change is taken
        except InvalidInput as error:
            error.hint = f"name the earlier run first: `cafcat query {query.name} {runs[1]} {runs[0]}`"
            raise
    return [_whole(repository, kind, value) for kind, value in zip_longest(kinds[: len(values)], values)]


def _looked_up(call: Call, query: "NamedQuery", values: list[str]) -> list[str]:
    """Return the values for `--sql`. Only short UUIDs, and names and folders of stores, need the catalog."""
    kinds = [parameter.kind for parameter in query.parameters]
    pairs = list(zip_longest(kinds[: len(values)], values))
    if all(_is_complete(kind, value) for kind, value in pairs):
        return values
    with call.files() as repository:
        return [value if _is_complete(kind, value) else _whole(repository, kind, value) for kind, value in pairs]


def _is_complete(kind: str | None, value: str) -> bool:
    if kind == "UUID":
        return len(value) == len(str(UUID(int=0)))
    return kind != "STORE" or "://" in value


def _whole(repository: "PackedFiles", kind: str | None, value: str) -> str:
    if kind == "UUID":
        return str(repository.chunk(value).uuid)
    if kind == "STORE":
        from cafcat.operations.chosen_stores import url_of_store_with_chunks

        return str(url_of_store_with_chunks(repository.session, value))
    if kind == "FILE" and value.startswith(("./", "/")):
        files = repository.session.catalog.reading.files
        return value if files.locate_many([value]) else from_root(value)
    return value


def _is_whole(value: str) -> bool:
    return value.removeprefix("-").isdecimal()


def register(app: typer.Typer) -> None:
    """Add `cafcat query` to the commands of the program."""
    verb(app, "query", query)

"""The commands `cafcat chunks ls` and `cafcat chunks show`: their flags and output."""

from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.cli.call import Call, group, verb
from cafcat.cli.output import location_document
from cafcat.model import Chunk, ChunkState
from cafcat.support.arguments import parse_text
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.catalog.chunks.copies import CopyStatus, LastCheck

__all__ = ["register"]


def ls(
    call: Call,
    state: Annotated[ChunkState | None, typer.Option("--state", help="Only list chunks in this state.")] = None,
) -> None:
    """List the chunks of the catalog, one per line.

    Example: cafcat chunks ls
    """
    with call.files() as repository:
        for chunk in repository.chunks(state):
            call.output.show(chunk._asdict(), [_row(chunk)])


def _all(call: Call) -> None:
    """List the chunks of all states: `cafcat chunks` without a command."""
    ls(call)


def _row(chunk: Chunk) -> str:
    size = format_size(chunk.size_bytes) if chunk.size_bytes is not None else "-"
    files = f"{chunk.live_file_count} of {plural(chunk.file_count, 'file')}"
    return f"{chunk.uuid}  {chunk.state:9}  {chunk.format:10}  {size:>10}  {files:>24}  {chunk.begun_at}"


def show(
    call: Call,
    *,
    uuid: Annotated[
        str,
        typer.Argument(metavar="UUID", parser=parse_text, help="Uuid of the chunk, or its first 8 digits or more."),
    ],
    files: Annotated[bool, typer.Option("--files", help="List the files in the chunk, too.")] = False,
) -> None:
    """Show one chunk with its copies, and its files with --files.

    Example: cafcat chunks show 1b4e28ba --files
    """
    with call.files() as repository:
        chunk = repository.chunk(uuid)
        queries = repository.session.catalog.copies
        check, copies = queries.own_check(chunk.uuid), queries.statuses(chunk.uuid)
        document = chunk._asdict()
        shown = document | {"check": _shown_check(check)}
        document |= {"check": check and check._asdict(), "copies": [copy._asdict() for copy in copies]}
        call.output.fields(document, shown)
        if not call.json:
            for copy in copies:
                call.output.line(f"{'copy':<{max(map(len, shown))}}  {call.output.shown(_copy_row(copy))}")
        if not files:
            return
        for location in repository.chunk_files(str(chunk.uuid)):
            span = f"[{location.start_byte}, {location.end_byte})"
            document = location_document(location, repository.object_of(location))
            call.output.show(document, [f"{span:>26}  {call.output.shown(location.path)}"])


def _copy_row(copy: "CopyStatus") -> str:
    check = f"checked {copy.checked_at} ({copy.level}): {copy.verdict}" if copy.checked_at else "not checked"
    return f"{copy.store}  {copy.state}  {check}"


def _shown_check(check: "LastCheck | None") -> str:
    return "none" if check is None else f"{check.checked_at} ({check.level}): {check.verdict}"


def register(app: typer.Typer) -> None:
    """Add the group `cafcat chunks` to the commands of the program."""
    help = "List and show the chunks of the catalog. Without a command, they are listed."
    below = group(app, "chunks", help, alone=_all)
    verb(below, "ls", ls)
    verb(below, "show", show)

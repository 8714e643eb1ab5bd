"""`cafcat inspect`."""

from typing import Annotated

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.output import entry_document, timestamp
from cafcat.model import Entry
from cafcat.units import format_size

__all__ = ["register"]


def inspect(
    call: Call,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An archive on disk.")],
    long: Annotated[bool, typer.Option("--long", "-l", help="Spans, sizes, checksums and times too.")] = False,
) -> None:
    """List the files in an archive, without a catalog.

    Example: cafcat inspect -l backup.caf
    """
    from cafcat.repository import inspect as look_into

    archive = look_into(file)
    if call.verbose and not call.json:
        size = format_size(archive.size_bytes)
        call.output.notice(f"{archive.object}: format {archive.format}, {archive.size_bytes} bytes ({size})")
    for entry in archive.entries:
        text = call.output.shown(entry.path)
        line = f"{_columns(entry)}  {text}" if long else text
        call.output.show(entry_document(entry, archive.object), [line])


def _columns(entry: Entry) -> str:
    crc32c = f"{entry.crc32c:08x}" if entry.crc32c is not None else "-"
    modified = timestamp(entry.modified_ns) or "-"
    return f"{entry.start_byte:>12}  {entry.end_byte:>12}  {entry.size_bytes:>12}  {crc32c:8}  {modified:27}"


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    verb(app, "inspect")(inspect)

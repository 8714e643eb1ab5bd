"""The command `cafcat units`: its flags and output."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.reading.missing_names import NO_LOGS
from cafcat.errors import NotFound
from cafcat.model import ChunkState
from cafcat.support.arguments import parse_text
from cafcat.support.quantities import plural

if TYPE_CHECKING:
    from cafcat.catalog.files.log_units import StoredUnit

__all__ = ["register"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def units(
    call: Call,
    *,
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="PREFIX",
            parser=parse_text,
            help="Folder of log files, or one log file. Default: everything.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """List the log files in archives of logs. Shows the number of their records, and the times of the archive.

    Example: cafcat units app/2026-11
    """
    with call.repository(makes_catalog=False) as repository:
        found = False
        for unit in repository.units(prefix):
            found = True
            if call.json:
                call.output.document(_document(unit))
            else:
                records = plural(unit.end_record - unit.first_record, "record")
                times = f"{time_text(unit.begin_ms) or '?'} to {time_text(unit.end_ms) or '?'}"
                name = call.output.shown(unit.log_file or "(no name)")
                removed = "  removed" if unit.state == ChunkState.RETIRED else ""
                call.output.line(f"{name}  {records}  {unit.chunk}  {times}{removed}")
        if prefix and not found:
            raise NotFound(NO_LOGS, path=prefix)
    if not found:
        call.note("there are no archives of logs; `cafcat ingest --format clp-s` makes one")


def _document(unit: "StoredUnit") -> dict[str, Any]:
    times = {"begin_at": time_text(unit.begin_ms), "end_at": time_text(unit.end_ms)}
    return unit._asdict() | {"records": unit.end_record - unit.first_record} | times


def time_text(milliseconds: float | None) -> str | None:
    """Return a time in UTC as in RFC 3339, to the millisecond; None if unknown, or not in the years 1 to 9999.

    Args:
        milliseconds: The time in milliseconds since 1970; None if it is unknown.
    """
    if milliseconds is None:
        return None
    try:
        when = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def register(app: typer.Typer) -> None:
    """Add `cafcat units` to the commands of the program."""
    verb(app, "units", units)

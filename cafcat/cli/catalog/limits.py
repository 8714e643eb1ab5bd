"""The commands of `cafcat limits`, for the limits of requests and bytes."""

from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.cli.call import Call, group, verb
from cafcat.support.arguments import parse_text
from cafcat.support.quantities import format_size, parse_rate, parse_size, plural

if TYPE_CHECKING:
    from cafcat.catalog.limits import LimitRow

__all__ = ["register"]

_Url = Annotated[
    str, typer.Argument(metavar="URL", parser=parse_text, help="A bucket, a folder of one, or a store by its name.")
]


def set_(
    call: Call,
    *,
    url: _Url,
    requests: Annotated[
        int | None, typer.Option("--requests", metavar="N", min=1, help="Most requests at the same time.")
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option(
            "--in-flight", metavar="SIZE", parser=parse_size, help="Most bytes of requests at the same time."
        ),
    ] = None,
    rate: Annotated[
        int | None,
        typer.Option("--bandwidth", metavar="RATE", parser=parse_rate, help="Most bytes per second, as 100MB/s."),
    ] = None,
) -> None:
    """Limit the requests and bytes of a store or source, for all processes on all hosts together.

    Example: cafcat limits set s3://bucket --requests 200 --bandwidth 500MB/s
    """
    with call.repository() as repository:
        found = repository.set_limit(url, requests=requests, in_flight_bytes=in_flight, bytes_per_second=rate)
    call.summarize({"set": found}, [call.output.shown(f"limited {found}; running commands follow in 5 seconds")])


def list_(call: Call) -> None:
    """List the limits, and how many processes share each of them now.

    Example: cafcat limits list
    """
    is_empty = True
    with call.repository(makes_catalog=False) as repository:
        for row in repository.limits():
            is_empty = False
            call.output.show(row._asdict(), [call.output.shown(_row(row))])
    if is_empty:
        call.note("there are no limits; `cafcat limits set URL` sets one")


def _row(row: "LimitRow") -> str:
    amounts = [
        None if row.requests is None else f"{plural(row.requests, 'request')} at the same time",
        None if row.in_flight_bytes is None else f"{format_size(row.in_flight_bytes)} in flight",
        None if row.bytes_per_second is None else f"{format_size(row.bytes_per_second)}/s",
    ]
    return f"{row.url}  {', '.join(amount for amount in amounts if amount)}  ({row.workers} processes)"


def remove(call: Call, *, url: _Url) -> None:
    """Remove a limit.

    Example: cafcat limits remove s3://photos
    """
    with call.repository() as repository:
        found = repository.remove_limit(url)
    call.summarize({"removed": found}, [call.output.shown(f"removed the limit of {found}")])


def register(app: typer.Typer) -> None:
    """Add the group `cafcat limits` to the commands of the program."""
    help = "Limit the requests and bytes of stores and sources. Without a command, the limits are listed."
    below = group(app, "limits", help, alone=list_)
    for name, function in (("set", set_), ("list", list_), ("remove", remove)):
        verb(below, name, function)

"""The command `cafcat search`: its flags and output."""

import signal
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.errors import SOME_FAILED
from cafcat.cli.reading.missing_names import NO_LOGS
from cafcat.errors import NotFound
from cafcat.support.arguments import parse_date, parse_text
from cafcat.support.quantities import plural

if TYPE_CHECKING:
    from cafcat.logs.searching import LogSearch, SearchReport

__all__ = ["register"]

_NS_PER_MS = 1_000_000
_EXAMPLE = "level: ERROR"


def search(
    call: Call,
    *,
    query: Annotated[
        str,
        typer.Argument(metavar="QUERY", parser=parse_text, help="Query, such as: level: ERROR AND NOT host: a*."),
    ],
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="PREFIX",
            parser=parse_text,
            help="Only search this log file, or the log files below this folder.",
            show_default=False,
        ),
    ] = "",
    since: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="TIME",
            parser=parse_date,
            help="Only records from this time on; a date is its midnight.",
        ),
    ] = None,
    until: Annotated[
        int | None, typer.Option("--to", metavar="TIME", parser=parse_date, help="Only records up to this time.")
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Ignore upper and lower case.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Only print the number of matching records.")] = False,
    projection: Annotated[
        list[str] | None,
        typer.Option(
            "--projection",
            metavar="COLUMN",
            parser=parse_text,
            help="Only print this column of the records. Repeatable.",
        ),
    ] = None,
) -> int:
    """Search the records in archives of logs (clp-s). Archives that cannot match are not opened.

    Example: cafcat search 'level: ERROR' app --from 2026-11-21 --to 2026-11-22
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)  # the program that searches ends with this process
    with call.repository(makes_catalog=False) as repository:
        found = repository.search(
            query,
            prefix,
            from_ms=None if since is None else -(-since // _NS_PER_MS),
            to_ms=None if until is None else until // _NS_PER_MS,
            ignore_case=ignore_case,
            projection=projection or [],
            warn=call.warn,
        )
        _print_records(call, found, silent=count)
        if not found.report.archives:
            hint = (
                "`cafcat ingest --format clp-s` makes archives of logs, and `cafcat find` searches names of files"
            )
            call.warn(f"the catalog has no archive of logs; {hint}")
        elif not found.report.records and not repository.has_logs(prefix):
            raise NotFound(NO_LOGS, path=prefix)
        elif not found.report.records and "=" in query and ":" not in query:
            call.warn(f"no record matches the text {query!r}; a field is searched with a colon: {_EXAMPLE}")
    return _end(call, found.report, count=count)


def _print_records(call: Call, found: "LogSearch", *, silent: bool) -> None:
    with closing(found.records()) as records:
        for record, chunk in records:
            if silent:
                continue
            if call.json:
                call.output.raw_line(b'{"record": %s, "chunk": "%s"}' % (record, str(chunk).encode()))
            else:
                call.output.raw_line(record)


def _end(call: Call, report: "SearchReport", *, count: bool) -> int:
    if call.json:
        call.output.document({"summary": asdict(report)})
    elif count:
        call.output.line(str(report.records))
    if not call.json:
        for message in report.failed:
            call.output.notice(message)
        if call.verbose:
            what = f"searched {report.searched} of {plural(report.archives, 'archive')}"
            call.output.notice(f"{what}: {plural(report.records, 'record')}")
    return SOME_FAILED if report.failed else 0


def register(app: typer.Typer) -> None:
    """Add `cafcat search` to the commands of the program."""
    verb(app, "search", search)

"""The commands of `cafcat db`, for the catalog's database."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cafcat.cli.call import Call, group, verb
from cafcat.cli.confirming import DryRun, confirm
from cafcat.cli.errors import DAMAGE
from cafcat.cli.operation import operation
from cafcat.cli.progress import ShownProgress
from cafcat.cli.reading.lost import ROWS_BACK, find_lost
from cafcat.support.arguments import parse_text
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.operations.partition.report import PartitionReport

__all__ = ["register"]


def init(
    call: Call,
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", metavar="N", help="Partitions of the table of files, 2 to 1024; 0 for a plain table."
        ),
    ] = None,
) -> None:
    """Create cafcat's tables in an empty database.

    Example: cafcat --database-url postgresql://host/catalog db init
    """
    revision = call.database().init(partitions)
    call.summarize({"revision": revision}, [f"the database is ready, at revision {revision}"])


def upgrade(call: Call) -> None:
    """Upgrade the database to the schema of this version of cafcat.

    Example: cafcat db upgrade
    """
    before, after = call.database().upgrade()
    if before is None:
        line = f"the database is ready, at revision {after}"
    elif before == after:
        line = f"already at revision {after}"
    else:
        line = f"upgraded from {before} to {after}"
    call.summarize({"from": before, "to": after}, [line])


def current(call: Call) -> None:
    """Show the schema revision of the database, the needed revision, and the layout of the table of files.

    An unfinished change of the layout is shown with the command that continues it.

    Example: cafcat db current --json
    """
    call.require_home()
    database = call.database()
    found, needed = database.current()
    partitions = database.partitions() if found == needed else None
    change = database.layout_change() if found == needed else None
    document = {
        "revision": found,
        "needed": needed,
        "partitions": partitions,
        "change": None if change is None else {"partitions": change.partitions, "phase": change.phase},
    }
    layout = "unknown" if partitions is None else f"{partitions} partitions" if partitions else "plain table"
    shown = {"revision": found or "none", "needed": needed, "layout": layout}
    if change is not None:
        from cafcat.catalog.layout import described

        remedy = f"`cafcat db partition {change.partitions} --yes` continues it"
        shown["unfinished"] = f"change to {described(change.partitions)}; {remedy}"
    call.output.fields(document, shown)


def check(call: Call) -> int:
    """Check the catalog for contradictions, and for signs that it was lost. The exit code is 5 if there are any.

    Example: cafcat db check
    """
    call.require_home()
    findings = call.database().check()
    remedy = [ROWS_BACK] if any("`cafcat recover`" not in finding for finding in findings) else []
    with call.files() as repository:
        if (lost := find_lost(repository.session)) is not None:
            findings = [*findings, str(lost)]
    call.output.show({"findings": findings}, map(call.output.shown, [*findings, *remedy] or ["nothing is wrong"]))
    return DAMAGE if findings else 0


def partition(
    call: Call,
    *,
    partitions: Annotated[
        int | None,
        typer.Argument(metavar="[N]", help="Partitions of the table of files, 2 to 1024; 0 for a plain table."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Undo an unfinished change.")] = False,
) -> None:
    """Change the layout of the table of files while it is in use. Shows the disk space first, and asks.

    Example: cafcat db partition 16 --yes
    """
    if cancel is (partitions is not None):
        raise typer.BadParameter("give either the number of partitions or --cancel")
    left = "run the same command again to continue; other commands work meanwhile"
    with operation(call, ShownProgress(call), if_interrupted=left) as session:
        from cafcat.operations.partition import run as operations

        if partitions is None:
            had_change = operations.cancel(session)
            document: dict[str, Any] = {"cancelled": had_change}
            lines = ["undone" if had_change else "no change is unfinished"]
        else:
            report = operations.run(session, partitions, dry_run=True)
            if not report.changed and not dry_run:
                call.warn(_need(report))
                if not yes:
                    confirm(call, "Change the layout?")
                report = operations.run(session, partitions)
            document, lines = {"summary": asdict(report)}, [_outcome(report)]
    call.summarize(document, lines)


def _need(report: "PartitionReport") -> str:
    """Return a line about the disk space that a change needs."""
    return (
        f"the change copies about {plural(report.rows, 'row')}. It needs {format_size(report.total_bytes)} of disk "
        f"until its end, and writes about {format_size(report.log_bytes)} of write-ahead log"
    )


def _outcome(report: "PartitionReport") -> str:
    if report.changed:
        from cafcat.catalog.layout import described

        return f"the catalog has {described(report.partitions)}"
    state = f"an unfinished change is in the phase {report.unfinished}; " if report.unfinished else ""
    return f"{state}{_need(report)}"


def url(call: Call) -> None:
    """Print the libpq URL of the database. A password in the URL is shown.

    Example: psql "$(cafcat db url)"
    """
    call.require_home()
    address = call.database().url()
    call.output.show({"url": address}, [address])


def stop(call: Call) -> None:
    """Stop the embedded database. The next command that needs it starts it again.

    Example: cafcat db stop
    """
    stopped = call.database().stop()
    call.summarize({"stopped": stopped}, ["stopped" if stopped else "was not running"])


def grant_reader(
    call: Call,
    *,
    role: Annotated[
        str, typer.Argument(metavar="ROLE", parser=parse_text, help="Name of the role in the database.")
    ],
) -> None:
    """Let a role of the database read all tables and views, and change nothing. A missing role is created.

    The password of a created role is printed, and not shown again.

    Example: cafcat db grant-reader grafana
    """
    password = call.database().grant_reader(role)
    line = f"the role {role} can read the catalog"
    lines = [line] if password is None else [f"{line}; its password is {password}"]
    call.output.show({"role": role, "password": password}, map(call.output.shown, lines))


def listen(
    call: Call,
    *,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", min=1024, max=65535, help="TCP port. Default: the first free one from 15432 on."
        ),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Close the port.")] = False,
) -> None:
    """Open a TCP port of the embedded database on this machine, for programs that read, such as Grafana.

    Prints a URL with a new password of the role `cafcat_reader`, which can only read. The database is restarted;
    running commands connect again. Roles of `db grant-reader` can use the port, too.

    Example: cafcat db listen --port 15432
    """
    if off:
        closed = call.database().stop_listening()
        call.output.show({"closed": closed}, ["closed the port" if closed else "no port was open"])
        return
    url = call.database().listen(port)
    call.output.show({"url": url}, [url])


def register(app: typer.Typer) -> None:
    """Add the group `cafcat db` to the commands of the program."""
    below = group(app, "db", "Make, upgrade, check, partition and stop the catalog's database.")
    for function in (init, upgrade, current, check, partition, url, listen, stop):
        verb(below, function.__name__, function)
    verb(below, "grant-reader", grant_reader)

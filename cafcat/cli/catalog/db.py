"""The commands of `cafcat db`, for the catalog's database."""

import typer

from cafcat.cli.call import Call, group, verb
from cafcat.cli.errors import DAMAGE
from cafcat.cli.reading.lost import warn_if_lost

__all__ = ["register"]


def init(call: Call) -> None:
    """Create cafcat's tables in an empty database."""
    revision = call.database().init()
    call.output.show({"revision": revision}, [f"the database is ready, at revision {revision}"])


def upgrade(call: Call) -> None:
    """Upgrade the database to the schema of this version of cafcat."""
    before, after = call.database().upgrade()
    line = f"already at revision {after}" if before == after else f"upgraded from {before} to {after}"
    call.output.show({"from": before, "to": after}, [line])


def current(call: Call) -> None:
    """Show the schema revision of the database, and the revision that this version of cafcat needs."""
    found, needed = call.database().current()
    document = {"revision": found, "needed": needed}
    call.output.fields(document, {"revision": found or "none", "needed": needed})


def check(call: Call) -> int:
    """Check the catalog for contradictions, and for signs that it was lost. The exit code is 5 if there are any."""
    findings = call.database().check()
    with call.files() as repository:
        if (lost := warn_if_lost(call, repository)) is not None:
            findings = [*findings, lost.message]
    call.output.show({"findings": findings}, map(call.output.shown, findings or ["nothing is wrong"]))
    return DAMAGE if findings else 0


def url(call: Call) -> None:
    """Print the libpq URL of the database. A password in the URL is shown.

    Example: psql "$(cafcat db url)"
    """
    address = call.database().url()
    call.output.show({"url": address}, [address])


def stop(call: Call) -> None:
    """Stop the embedded database. The next command that needs it starts it again."""
    stopped = call.database().stop()
    call.output.show({"stopped": stopped}, ["stopped" if stopped else "was not running"])


def register(app: typer.Typer) -> None:
    """Add the group `cafcat db` to the commands of the program."""
    below = group(app, "db", "Make, upgrade, check and stop the catalog's database.")
    for function in (init, upgrade, current, check, url, stop):
        verb(below, function.__name__, function)

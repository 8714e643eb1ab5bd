"""The commands `cafcat runs` and `cafcat stats`: their flags and output."""

from dataclasses import asdict
from typing import Annotated

import typer

from cafcat.cli.call import Call, group, verb
from cafcat.cli.output import plural
from cafcat.cli.reading.lost import warn_if_lost
from cafcat.model import Run
from cafcat.support.quantities import format_size

__all__ = ["register"]

RunId = Annotated[int, typer.Argument(metavar="RUN", help="Number of the run, as `cafcat runs` shows it.")]


def runs(
    call: Call, limit: Annotated[int, typer.Option("--limit", min=1, help="Number of runs, newest first.")] = 20
) -> None:
    """List the latest ingests."""
    with call.files() as repository:
        for run in repository.runs(limit):
            call.output.show(asdict(run), [call.output.shown(_row(run))])


def _row(run: Run) -> str:
    counts = (
        f"+{run.files_added} files, {run.files_replaced} replaced, {run.files_unchanged} unchanged,"
        f" {run.files_skipped} skipped, {run.files_failed} failed"
    )
    work = f"{format_size(run.bytes_added)} in {plural(run.chunks_committed, 'chunk')}"
    return f"{run.id:>6}  {run.started_at}  {run.state:11}  {counts}, {work}  {' '.join(run.sources)}"


def pause(call: Call, *, run: RunId) -> None:
    """Pause a running ingest. Within 5 seconds, its processes begin no further file, until the run is resumed."""
    with call.repository() as repository:
        repository.pause_run(run)
    hint = f"`cafcat runs resume {run}` continues it"
    call.output.show({"paused": run}, [f"run {run} pauses within 5 seconds; {hint}"])


def resume(call: Call, *, run: RunId) -> None:
    """Let a paused ingest go on."""
    with call.repository() as repository:
        repository.resume_run(run)
    call.output.show({"resumed": run}, [f"run {run} goes on within 5 seconds"])


def stats(call: Call) -> None:
    """Show the totals of the catalog."""
    with call.files() as repository:
        totals = asdict(repository.stats())
        warn_if_lost(call, repository)
    shown = {name: _shown(name, value) for name, value in totals.items()}
    call.output.fields(totals, shown)


def _shown(name: str, value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {state}" for state, count in value.items()) or "none"
    in_bytes = isinstance(value, int) and name.endswith("bytes")
    return f"{value} ({format_size(int(str(value)))})" if in_bytes else str(value)


def register(app: typer.Typer) -> None:
    """Add `cafcat runs` and `stats` to the commands of the program."""
    below = group(app, "runs", "List the latest ingests, pause and resume them.", alone=runs)
    verb(below, "pause", pause)
    verb(below, "resume", resume)
    verb(app, "stats", stats)

"""The commands `cafcat runs` and `cafcat stats`: their flags and output."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cafcat.catalog.history.runs import COUNTERS
from cafcat.cli.call import Call, group, verb
from cafcat.cli.output import one_line
from cafcat.cli.reading.lost import warn_if_lost
from cafcat.model import Run, RunState, ShardState, ShardSummary
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.packed_files import PackedFiles

__all__ = ["register"]

_LOST: Final = ("sources", "prefix", *COUNTERS)
"""Attributes of a Run that a rebuilt catalog lacks."""

RunId = Annotated[int, typer.Argument(metavar="RUN", help="Number of the run, as `cafcat runs` shows it.")]


def runs(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Number of runs, newest first.")] = 20,
) -> None:
    """List the latest ingests.

    Example: cafcat runs --limit 5
    """
    with call.files() as repository:
        found = repository.runs(limit)
    for run in found:
        call.output.show(_document(run), [call.output.shown(_row(run))])
    if not found:
        call.note("there are no runs; `cafcat ingest FOLDER` packs a folder")


def _document(run: Run) -> dict[str, Any]:
    """Return a run as --json prints it: null for everything that a rebuild lost."""
    return run._asdict() | (dict.fromkeys(_LOST) if run.state is RunState.REBUILT else {})


def _row(run: Run) -> str:
    head = f"{run.id:>6}  {run.started_at}  {run.state:11}"
    if run.state is RunState.REBUILT:
        return f"{head}  counts and sources are lost; `cafcat query files-of-run {run.id}` lists its live files"
    counts = (
        f"+{plural(run.files_added, 'file')}, {run.files_replaced} replaced, {run.files_unchanged} unchanged,"
        f" {f'{run.files_removed} removed, ' if run.files_removed else ''}"
        f"{run.files_skipped} skipped, {run.files_failed} failed"
    )
    work = f"{format_size(run.bytes_added)} in {plural(run.chunks_committed, 'chunk')}"
    prefix = f", prefix {run.prefix}" if run.prefix else ""
    return f"{head}  {counts}, {work}  {' '.join(run.sources)}{prefix}"


def pause(call: Call, *, run: RunId) -> None:
    """Pause a running ingest. Within 5 seconds, its processes begin no further file, until the run is resumed.

    Example: cafcat runs pause 7
    """
    with call.repository() as repository:
        repository.pause_run(run)
    hint = f"`cafcat runs resume {run}` continues it"
    call.summarize({"paused": run}, [f"run {run} pauses within 5 seconds; {hint}"])


def resume(call: Call, *, run: RunId) -> None:
    """Let a paused ingest go on.

    Example: cafcat runs resume 7
    """
    with call.repository() as repository:
        repository.resume_run(run)
    call.summarize({"resumed": run}, [f"run {run} goes on within 5 seconds"])


def show(call: Call, *, run: RunId) -> None:
    """Show an ingest, with the progress of its shards on each host.

    Example: cafcat runs show 7
    """
    with call.files() as repository:
        call.output.show(*_shown_run(call, repository, run))


def watch(
    call: Call,
    *,
    run: RunId,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.2, help="Time between two looks.")
    ] = 2.0,
) -> None:
    """Show the progress of an ingest again and again, until it has ended or Ctrl-C is pressed.

    Example: cafcat runs watch 7
    """
    lines: list[str] = []
    with call.files() as repository, suppress(KeyboardInterrupt):
        while True:
            if lines and sys.stdout.isatty() and not call.json:
                call.output.line(f"\x1b[{len(lines) + 1}A\x1b[J")  # the lines replace those of the last look
            document, lines = _shown_run(call, repository, run)
            call.output.show(document, lines)
            if document["state"] != RunState.RUNNING:
                return
            time.sleep(interval)


def _shown_run(call: Call, repository: "PackedFiles", run: int) -> tuple[dict[str, Any], list[str]]:
    """Return an ingest as a JSON document and as lines for people."""
    found, shards = repository.run(run), repository.shards(run)
    document = _document(found) | {"shards": [shard._asdict() for shard in shards]}
    failed = f"files that failed: cafcat query failed-files {run}"
    why = [] if found.error is None else [f"error: {one_line(found.error)}"]
    lines = [_row(found), *why, *_progress(shards), *([failed] if found.files_failed else ())]
    return document, [call.output.shown(line) for line in lines]


_SIGNS: Final = {"added": "+", "replaced": "~", "removed": "-"}


def diff(
    call: Call,
    *,
    first: Annotated[int, typer.Argument(metavar="RUN", help="Number of the earlier run.")],
    last: Annotated[int, typer.Argument(metavar="LATER_RUN", help="Number of the later run.")],
) -> None:
    """Show the files that changed from the end of one ingest to the end of a later one.

    Each line begins with + for an added file, ~ for a replaced one, - for a removed one. The changes of all
    commands count, not only those of ingests. A file that was packed again with the same content did not change.

    Example: cafcat runs diff 7 8
    """
    with call.files() as repository:
        for change in repository.changes_between(first, last):
            line = f"{_SIGNS[change.change]} {call.output.shown(change.path)}"
            call.output.show(change._asdict(), [line])


def _progress(shards: Sequence[ShardSummary]) -> Iterator[str]:
    """Yield a line for all shards of a run, one for each host, and one for each error; none without shards."""
    if not shards:
        return
    states = Counter(shard.state for shard in shards)
    listed = ", ".join(f"{count} {state}" for state, count in states.items())
    yield f"shards: {listed}; {_handled(shards)}"
    hosts: dict[str, list[ShardSummary]] = {}
    for shard in shards:
        if shard.host is not None:
            hosts.setdefault(shard.host, []).append(shard)
    for host, taken in sorted(hosts.items()):
        running = sum(shard.state is ShardState.RUNNING for shard in taken)
        yield f"host {host}: {plural(len(taken), 'shard')}, {running} running; {_handled(taken)}"
    for error in sorted({shard.error for shard in shards if shard.error is not None}):
        yield f"error of a worker: {error}"


def _handled(shards: Sequence[ShardSummary]) -> str:
    size_bytes = sum(shard.bytes for shard in shards)
    return f"{plural(sum(shard.files for shard in shards), 'file')}, {format_size(size_bytes)} handled"


def stats(call: Call) -> None:
    """Show the totals of the catalog.

    Example: cafcat stats --json
    """
    with call.files() as repository:
        totals = repository.stats()._asdict()
        warn_if_lost(call, repository.session)
    shown = {name: _shown(name, value) for name, value in totals.items()}
    call.output.fields(totals, shown)


def _shown(name: str, value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {state}" for state, count in value.items()) or "none"
    in_bytes = isinstance(value, int) and name.endswith("bytes")
    return f"{value} ({format_size(int(str(value)))})" if in_bytes else str(value)


def register(app: typer.Typer) -> None:
    """Add `cafcat runs` and `stats` to the commands of the program."""
    below = group(
        app,
        "runs",
        "List the latest ingests; show, watch, diff, pause and resume them.\n\nExample: cafcat runs --limit 5",
        alone=runs,
    )
    verb(below, "show", show)
    verb(below, "watch", watch)
    verb(below, "diff", diff)
    verb(below, "pause", pause)
    verb(below, "resume", resume)
    verb(app, "stats", stats)

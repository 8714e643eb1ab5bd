"""The command `cafcat prune`: its flags, progress and output."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.confirming import DryRun, confirm
from cafcat.cli.errors import INTERRUPTED, SOME_FAILED
from cafcat.cli.operation import operation
from cafcat.cli.options import ONLY_IN_STORE
from cafcat.cli.progress import ShownProgress
from cafcat.events import ChunkPruned, Event
from cafcat.operations.prune.options import PruneOptions
from cafcat.support.arguments import format_duration
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.operations.prune.report import PruneReport

__all__ = ["register"]


class _Progress(ShownProgress):
    """Progress of `cafcat prune`. With -v, prints each pruned chunk: on stderr, with --json on stdout.

    A dry run counts nothing for `--metrics-file`.
    """

    def __init__(self, call: Call, *, dry_run: bool) -> None:
        super().__init__(call)
        self._would = "would be " if dry_run else ""
        if dry_run:
            self._job = None

    def show(self, event: Event) -> None:
        if not isinstance(event, ChunkPruned):
            return
        if self._call.verbose and self._call.json:
            self._call.output.document(event._asdict())
        elif self._call.verbose:
            removed = f"removed: {plural(event.objects, 'object')}, {format_size(event.bytes_freed)}"
            what = removed if event.objects else "removed from the catalog"
            since = f", without files since {event.retired_at[:19]}Z" if event.retired_at else ""
            self._print(f"chunk {event.uuid} {self._would}{what}{since}")


def prune(call: Call, options: PruneOptions, *, only_show: DryRun = False) -> int:
    """Remove chunks that had no files for a grace period. Shows them first, and asks, unless --yes is given.

    Example: cafcat prune --grace 30d --yes
    """
    if not options.dry_run and not only_show:
        return _prune(call, options)[0]
    code, report = _prune(call, replace(options, dry_run=True))
    if code or only_show or not (report.objects or report.let_go):
        return code
    lost = f", and {_lost_files(report)} for good" if report.files_lost else ""
    confirm(call, f"Remove {plural(report.objects + report.let_go, 'object')}{lost}?")
    return _prune(call, replace(options, dry_run=False))[0]


def _prune(call: Call, options: PruneOptions) -> tuple[int, "PruneReport"]:
    """Run the operation, print its summary, and return exit code and report."""
    with operation(
        call,
        _Progress(call, dry_run=options.dry_run),
        at_hand="any open removal",
        if_interrupted="pruned chunks are gone; run prune again to continue",
    ) as session:
        from cafcat.operations.prune.run import run

        report = run(session, options)
    grace = format_duration(options.grace_seconds)
    call.summarize({"summary": asdict(report)}, _summary(report, grace), report.failed)
    return INTERRUPTED if report.interrupted else SOME_FAILED if report.failed else 0, report


def _summary(report: "PruneReport", grace: str) -> list[str]:
    lines = [_done(report)] if report.objects or not report.let_go else []
    if report.files_lost:
        cannot = "could not" if report.dry_run else "cannot"
        lines.append(f"{_lost_files(report)} {cannot} be brought back any more")
    if report.let_go:
        removed = "would remove" if report.dry_run else "removed"
        stay = "its object stays" if report.let_go == 1 else "their objects stay"
        lines.append(f"{removed} {plural(report.let_go, 'adopted archive')} from the catalog; {stay}")
    if report.chunks_waiting:
        waiting = f"{plural(report.chunks_waiting, 'chunk')} ({format_size(report.bytes_waiting)})"
        lines.append(f"{waiting} without files for less than {grace}: kept for now (--grace)")
    if report.copies_waiting:
        copies = f"{report.copies_waiting} {'copy' if report.copies_waiting == 1 else 'copies'}"
        lines.append(f"{copies} that a migration left less than {grace} ago: kept for now")
    if report.interrupted:
        lines[0] = f"interrupted; {lines[0]}"
    return lines


def _lost_files(report: "PruneReport") -> str:
    return plural(report.files_lost, "removed or replaced file")


def _done(report: "PruneReport") -> str:
    if not report.objects:
        return "nothing was pruned" if report.failed or report.interrupted else "nothing to prune"
    copies = report.objects - report.chunks
    also = f" and {copies} {'copy' if copies == 1 else 'copies'}" if copies else ""
    done, frees = ("would remove", "frees") if report.dry_run else ("removed", "freed")
    what = f"{plural(report.chunks, 'chunk')}{also}" if report.chunks or not copies else also.removeprefix(" and ")
    return f"{done} {what}: {frees} {format_size(report.bytes_freed)}"


def register(app: typer.Typer) -> None:
    """Add `cafcat prune` to the commands of the program."""
    hints = {"--max-unused": "`cafcat repack --max-unused SHARE` copies live files out of chunks with dead space"}
    verb(app, "prune", prune, store=ONLY_IN_STORE, commits=True, measured=True, hints=hints)

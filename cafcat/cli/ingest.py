"""The command `cafcat ingest`: its flags, progress and output."""

from dataclasses import asdict, fields, replace
from typing import Annotated, Final

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.choosing import warn_of_no_match
from cafcat.cli.clusters import Cluster, executor_of
from cafcat.cli.errors import INTERRUPTED, SOME_FAILED
from cafcat.cli.operation import operation
from cafcat.cli.progress import ShownProgress
from cafcat.errors import CafcatError, InvalidInput, NotConfirmed
from cafcat.events import ChangeFound, Event, SourceChange
from cafcat.model import Comparison, ProblemKind
from cafcat.operations.ingest.options import IngestOptions
from cafcat.reports import IngestReport
from cafcat.scanning.opening import SourceOptions
from cafcat.support.quantities import format_size, plural

__all__ = ["register"]

_SIGNS: Final = {
    SourceChange.ADDED: "+",
    SourceChange.REPLACED: "~",
    SourceChange.GONE: "-",
    SourceChange.DOUBTFUL: "?",
}
"""Signs before the paths of changes, as in `cafcat runs diff`."""
_PANELS: Final = {
    "Choosing files": (
        "files_from",
        "null_separated",
        "prefix",
        "include",
        "exclude",
        "follow_symlinks",
        "unpack_tars",
        "inventory",
        "restart_listing",
    ),
    "Finding changes": ("checksum", "force", "on_conflict", "delete", "max_delete"),
    "Writing chunks": ("format", "timestamp_key", "target_size", "join_store"),
    "Writing nothing": ("dry_run", "estimate", "prices"),
}


_EXCLUDES: Final = "repeat --exclude PATTERN, or list the files with find(1), and give the list to --files-from"
_NO_TAGS: Final = "cafcat has no tags and hosts; --prefix FOLDER names the folder of the files in the catalog"
_NO_SIZES: Final = "cafcat has no filter by size: list the files with find(1), and give the list to --files-from"
_OF_OTHER_PROGRAMS: Final = {
    "--stdin": "the source - reads a tar archive from standard input: tar -c FOLDER | cafcat ingest -",
    "-n": "--dry-run lists the changes, and writes nothing",
    **dict.fromkeys(("--exclude-file", "--exclude-from", "--iexclude", "--filter", "--one-file-system"), _EXCLUDES),
    **dict.fromkeys(("--host", "--tag"), _NO_TAGS),
    **dict.fromkeys(("--max-size", "--min-size", "--exclude-larger-than"), _NO_SIZES),
    **dict.fromkeys(("--transfers", "--checkers"), "-j N sets the number of processes"),
    **dict.fromkeys(("-P", "--progress"), "a terminal shows the progress; --quiet turns it off"),
}
"""Options of restic and rclone, each with the hint that cafcat prints."""

_GONE_BUT_KEPT: Final = "!"
"""Sign before the path of a file that is gone at its source, without --delete: the file stays in the catalog."""


class _Progress(ShownProgress):
    """Progress of `cafcat ingest`, which also lists changes."""

    def __init__(self, call: Call, *, removes: bool) -> None:
        """Begin without changes.

        Args:
            call: The call of the command.
            removes: True with --delete.
        """
        super().__init__(call)
        self._signs = _SIGNS if removes else {**_SIGNS, SourceChange.GONE: _GONE_BUT_KEPT}

    def show(self, event: Event) -> None:
        """Print a change on stdout: a sign and the path."""
        if isinstance(event, ChangeFound):
            output = self._call.output
            output.show(event._asdict(), [f"{self._signs[event.change]} {output.shown(event.path)}"])


def ingest(
    call: Call,
    options: IngestOptions,
    *,
    checksum: Annotated[
        bool,
        typer.Option("--checksum", help="Compare files by size and checksum instead of size and time."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Pack every file again, even if it did not change.")
    ] = False,
    cluster: Cluster = None,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Write nothing; estimate objects, requests, dollars and hours."),
    ] = False,
    prices: Annotated[
        str | None,
        typer.Option("--prices", metavar="FILE", help="Price list (TOML) for --estimate. Default: Amazon S3."),
    ] = None,
) -> int:
    """Pack files into chunks, and enter them into the catalog. A second run packs only new and changed files.

    With -v or --dry-run, each file that is new (+), changed (~), or gone at the source is listed: with - if
    --delete removes it from the catalog, with ! if it stays there. --dry-run also lists each file that has to be
    read to find out whether the file changed (?).

    Example: cafcat ingest /srv/photos s3://bucket/photos --exclude '*.tmp'
    """
    if checksum and force:
        raise InvalidInput(
            "--force packs every file, but --checksum compares files first", hint="leave one of them out"
        )
    if estimate:
        return _estimate(call, options, prices)
    if prices is not None:
        raise InvalidInput("--prices is for --estimate only", hint="leave --prices out, or add --estimate")
    comparison = Comparison.CHECKSUM if checksum else Comparison.NOTHING if force else Comparison.TIME
    list_changes = call.verbose or (options.dry_run and not call.quiet)
    options = replace(options, list_changes=list_changes and cluster is None)
    progress = _Progress(call, removes=options.delete)
    with (
        executor_of(cluster, share_password=options.share_password) as executor,
        operation(
            call,
            progress,
            at_hand="any open chunk",
            if_interrupted=lambda: _committed(progress),
            makes_catalog=True,
        ) as session,
    ):
        from cafcat.operations.ingest.run import run

        failure = None
        try:
            report = run(session, replace(options, comparison=comparison, executor=executor))
        except CafcatError as error:
            if error.report is None:
                raise
            failure, report = error, error.report
    was_none = not (report.interrupted or report.files_seen or report.files_failed)
    if was_none and options.include:
        warn_of_no_match(call, options.include, options.exclude, "paths below SRC")
    elif was_none and failure is None and not (options.exclude or report.files_skipped):
        call.note("no file was found in the sources: if they should have files, check that their disks are mounted")
    document, lines = {"summary": asdict(report)}, _summary(report, progress, removes=options.delete)
    if failure is not None and not isinstance(failure, NotConfirmed):  # after NotConfirmed, all files are packed
        lines[0] = f"ended early; {lines[0]}"
    if report.dry_run:  # the totals are what the user asked for, also with --quiet
        call.output.show(document, lines)
    else:
        call.summarize(document, lines)
    if failure is not None:
        raise failure
    return INTERRUPTED if report.interrupted else SOME_FAILED if report.files_failed else 0


def _estimate(call: Call, options: IngestOptions, prices: str | None) -> int:
    from cafcat.cli.estimate import show_estimate
    from cafcat.operations.estimate.options import EstimateOptions
    from cafcat.operations.estimate.run import run

    shared = {field.name: getattr(options, field.name) for field in fields(SourceOptions)}
    given = EstimateOptions(
        options.sources, format=options.format, target_size=options.target_size, prices=prices, **shared
    )
    with operation(call, ShownProgress(call), if_interrupted="nothing was written", makes_catalog=True) as session:
        report = run(session, given)
    show_estimate(call, report)
    return 0


def _committed(progress: ShownProgress) -> str:
    return (
        f"committed before: {plural(progress.files_committed, 'file')}, {format_size(progress.bytes_committed)}"
        f" in {plural(progress.chunks_committed, 'chunk')}"
    )


def _summary(report: IngestReport, progress: ShownProgress, *, removes: bool) -> list[str]:
    """Return the lines that `cafcat ingest` prints at its end without --json.

    Args:
        report: The counts of the ingest.
        progress: The display of the ingest.
        removes: True with --delete.
    """
    added, replaced = ("would add", "replace") if report.dry_run else ("added", "replaced")
    counts = [
        f"{added} {plural(report.files_added, 'file')}",
        f"{replaced} {report.files_replaced}",
        *_gone(report, removes=removes),
        f"unchanged {report.files_unchanged}",
        *(
            [f"{'to compare' if report.dry_run else 'compared'} {report.files_compared}"]
            if report.files_compared
            else []
        ),
        f"skipped {report.files_skipped}{_kinds(progress, failures=False)}",
        f"failed {report.files_failed}{_kinds(progress, failures=True)}",
    ]
    first = "interrupted; " if report.interrupted else ""
    seconds = max(progress.seconds, 0.001)
    if report.dry_run:
        return [first + ", ".join(counts), f"{format_size(report.bytes_added)} to pack, {seconds:.1f} s"]
    files = report.files_added + report.files_replaced
    work = (
        f"{format_size(report.bytes_added)} in {plural(report.chunks_committed, 'chunk')}, {seconds:.1f} s"
        f" ({files / seconds:.0f} files/s, {format_size(int(report.bytes_added / seconds))}/s)"
    )
    earlier = plural(report.files_of_earlier_run, "file")
    meanwhile = [f"workers of the earlier run packed {earlier} meanwhile"] if report.files_of_earlier_run else []
    return [first + ", ".join(counts), *([work] if report.chunks_committed else []), *meanwhile]


def _gone(report: IngestReport, *, removes: bool) -> list[str]:
    """Return the count of files that were removed, or that are gone at the source; an empty list for no such file.

    Args:
        report: The counts of the ingest.
        removes: True with --delete.
    """
    if removes:
        return [f"{'remove' if report.dry_run else 'removed'} {report.files_removed}"]
    return [f"gone {report.files_gone} (kept without --delete)"] if report.files_gone else []


def _kinds(progress: ShownProgress, *, failures: bool) -> str:
    """Return the numbers of files with problems by kind, such as " (3 symlink, 1 special)"; "" for none.

    Args:
        progress: The display of the ingest, which counted the problems.
        failures: True for kinds that are failures, False for kinds of skipped files.
    """
    kinds = [kind for kind in ProblemKind if kind.is_failure is failures and progress.problems[kind]]
    listed = ", ".join(f"{progress.problems[kind]} {kind.value.replace('_', ' ')}" for kind in kinds)
    return f" ({listed})" if listed else ""


def register(app: typer.Typer) -> None:
    """Add `cafcat ingest` to the commands of the program."""
    verb(app, "ingest", ingest, commits=True, moves=True, measured=True, panels=_PANELS, hints=_OF_OTHER_PROGRAMS)

"""`cafcat ingest`."""

from dataclasses import asdict
from typing import Annotated

import typer

from cafcat.cli.arguments import parse_text
from cafcat.cli.call import Call, verb
from cafcat.cli.errors import INTERRUPTED, SOME_FAILED
from cafcat.cli.options import JoinStore, prefix_option
from cafcat.cli.output import plural
from cafcat.cli.progress import ShownProgress
from cafcat.cli.stopping import StopOnSignal
from cafcat.errors import InvalidInput
from cafcat.model import Comparison, IngestReport, OnConflict, ProblemKind
from cafcat.support.quantities import format_size, parse_size

__all__ = ["register"]


def ingest(
    call: Call,
    *,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SRC...", help="Folders, files, tar files (- is stdin), s3://bucket/prefix.", show_default=False
        ),
    ] = None,
    files_from: Annotated[
        str | None,
        typer.Option(
            "--files-from", metavar="FILE", help="Take the files and URLs named in FILE, one a line; - is stdin."
        ),
    ] = None,
    null: Annotated[
        bool, typer.Option("--null", "-0", help="Names in --files-from end with NUL instead of newline.")
    ] = False,
    prefix: Annotated[str, prefix_option("Put everything below this folder.")] = "",
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include",
            metavar="PATTERN",
            parser=parse_text,
            help="Take only what matches (as in .gitignore); repeatable.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="PATTERN", parser=parse_text, help="Leave out what matches; repeatable."),
    ] = None,
    follow_symlinks: Annotated[
        bool,
        typer.Option("--follow-symlinks", help="Take what symbolic links point to; else they are skipped."),
    ] = False,
    no_unpack: Annotated[bool, typer.Option("--no-unpack", help="Take tar files as files, as they are.")] = False,
    inventory: Annotated[
        str | None,
        typer.Option(
            "--inventory", metavar="FILE", help="S3 Inventory manifest (file or URL) to use as the listing."
        ),
    ] = None,
    restart_listing: Annotated[
        bool, typer.Option("--restart-listing", help="List the bucket anew, not from where a run was interrupted.")
    ] = False,
    on_conflict: Annotated[
        OnConflict,
        typer.Option("--on-conflict", help="What to do with a path that the catalog has with other content."),
    ] = OnConflict.REPLACE,
    checksum: Annotated[
        bool,
        typer.Option("--checksum", help="Read every file and compare its checksum instead of its time."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Pack every file anew, whether or not the catalog has it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would be done.")] = False,
    join_store: JoinStore = False,
    format: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="Of the chunks: caf, car, chunkio, databundle or clp-s."),
    ] = "caf",
    timestamp_key: Annotated[
        str | None,
        typer.Option(
            "--timestamp-key",
            metavar="KEY",
            parser=parse_text,
            help="Of clp-s: key of records that has their time.",
        ),
    ] = None,
    target_size: Annotated[
        int | None,
        typer.Option(
            "--target-size",
            metavar="SIZE",
            parser=parse_size,
            help="Begin a new chunk at this size, as 30GB.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", metavar="N", help="Pack folders in so many processes; else one per processor."
        ),
    ] = None,
) -> int:
    """Pack files into chunks and enter them in the catalog. Run again, it takes only what is new or changed.

    Example: cafcat ingest /srv/photos s3://bucket/photos --exclude '*.tmp'
    """
    if checksum and force:
        raise InvalidInput("--force packs every file, --checksum compares first", hint="leave one of them out")
    comparison = Comparison.CHECKSUM if checksum else Comparison.NOTHING if force else Comparison.TIME
    stop = StopOnSignal("the open chunk", as_json=call.json)
    with stop, call.repository() as repository, ShownProgress(call) as progress:
        try:
            report = repository.ingest(
                sources or [],
                files_from=files_from,
                null_separated=null,
                prefix=prefix,
                include=include or [],
                exclude=exclude or [],
                follow_symlinks=follow_symlinks,
                unpack_tars=not no_unpack,
                inventory=inventory,
                restart_listing=restart_listing,
                on_conflict=on_conflict,
                comparison=comparison,
                dry_run=dry_run,
                join_store=join_store,
                format=format,
                timestamp_key=timestamp_key,
                target_size=target_size,
                jobs=jobs,
                progress=progress,
                should_stop=stop,
            )
        except KeyboardInterrupt:
            progress.end()
            call.output.notice(f"interrupted; {_committed(progress)}")
            return INTERRUPTED
    call.summarize({"summary": asdict(report)}, _summary(report, progress))
    return INTERRUPTED if report.interrupted else SOME_FAILED if report.files_failed else 0


def _committed(progress: ShownProgress) -> str:
    return (
        f"committed before: {progress.files_committed} files, {format_size(progress.bytes_committed)}"
        f" in {plural(progress.chunks_committed, 'chunk')}"
    )


def _summary(report: IngestReport, progress: ShownProgress) -> list[str]:
    """One or two lines for people."""
    verb = "would add" if report.dry_run else "added"
    counts = [
        f"{verb} {plural(report.files_added, 'file')}",
        f"replaced {report.files_replaced}",
        f"unchanged {report.files_unchanged}",
        *(
            [f"{'to compare' if report.dry_run else 'compared'} {report.files_compared}"]
            if report.files_compared
            else []
        ),
        f"skipped {report.files_skipped}{_kinds(progress, failures=False)}",
        f"failed {report.files_failed}{_kinds(progress, failures=True)}",
    ]
    seconds = max(progress.seconds, 0.001)
    files = report.files_added + report.files_replaced
    work = (
        f"{format_size(report.bytes_added)} in {plural(report.chunks_committed, 'chunk')}, {seconds:.1f} s"
        f" ({files / seconds:.0f} files/s, {format_size(int(report.bytes_added / seconds))}/s)"
    )
    first = "interrupted; " if report.interrupted else ""
    return [first + ", ".join(counts), work]


def _kinds(progress: ShownProgress, *, failures: bool) -> str:
    """ " (3 symlink, 1 special)", or nothing."""
    kinds = [kind for kind in ProblemKind if kind.is_failure is failures and progress.problems[kind]]
    listed = ", ".join(f"{progress.problems[kind]} {kind.value.replace('_', ' ')}" for kind in kinds)
    return f" ({listed})" if listed else ""


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    verb(app, "ingest", commits=True)(ingest)

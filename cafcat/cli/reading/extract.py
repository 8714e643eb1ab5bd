"""The command `cafcat extract`: its flags, progress and output."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.choosing import OLDER_VERSIONS, AsOf, FilesFrom, Null, choose, warn_of_no_match
from cafcat.cli.clusters import Cluster, SharePassword, executor_of
from cafcat.cli.errors import DAMAGE, INTERRUPTED, SOME_FAILED
from cafcat.cli.reading.get import Explain, Force
from cafcat.cli.reading.lost import warn_if_lost
from cafcat.errors import InvalidInput
from cafcat.model import ProblemKind
from cafcat.support.arguments import parse_text
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.reports import ExtractReport

__all__ = ["register"]


def extract(
    call: Call,
    *,
    directory: Annotated[
        str, typer.Option("--directory", "-C", metavar="DIR", help="Directory to write to; created if missing.")
    ],
    prefixes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PREFIX...",
            parser=parse_text,
            help="Folders, files or patterns such as 'photos/2024-*'. Default: everything.",
            show_default=False,
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include",
            metavar="PATTERN",
            parser=parse_text,
            help="Only files whose path in the catalog matches, as in .gitignore.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude",
            metavar="PATTERN",
            parser=parse_text,
            help="Leave out files whose path in the catalog matches.",
        ),
    ] = None,
    strip: Annotated[
        int, typer.Option("--strip", metavar="N", min=0, help="Remove N leading parts of each path.")
    ] = 0,
    as_of: AsOf = None,
    files_from: FilesFrom = None,
    null: Null = False,
    force: Force = False,
    explain: Explain = False,
    cluster: Cluster = None,
    share_password: SharePassword = False,
) -> int:
    """Copy folders of the catalog to disk, with modification times. Default: everything.

    Example: cafcat extract photos/2024 -C /tmp/photos
    """
    from cafcat.cli.progress import ShownProgress
    from cafcat.cli.stopping import StopOnSignal

    if not directory:
        raise InvalidInput("-C has no folder", hint="for the present folder, write -C .")
    chosen = choose(prefixes or [""], files_from, null=null)
    files: dict[str, Any] = {
        "prefix": prefixes or "",
        "paths": chosen.listed if chosen.has_list else None,
        "include": include or (),
        "exclude": exclude or (),
    }
    if explain:
        from cafcat.cli.reading.plans import show_plan

        with call.reading() as repository:
            versions = repository if as_of is None else repository.as_of(as_of)
            return show_plan(call, versions.plan_extract(**files))
    if as_of is not None and cluster is not None:
        raise InvalidInput("--as-of cannot be combined with --cluster")
    stop = StopOnSignal("any open file", as_json=call.json)
    with (
        executor_of(cluster, share_password=share_password) as executor,
        stop,
        call.reading() as repository,
        ShownProgress(call) as progress,
    ):
        progress.stop = stop
        files |= {"directory": directory, "strip": strip, "overwrite": force}
        heard = repository.with_progress(progress)
        if as_of is not None:
            report = heard.as_of(as_of).extract(**files)
        else:
            report = heard.extract(**files, executor=executor, share_password=share_password)
        if not (report.files or report.files_there or report.files_failed or report.interrupted):
            if as_of is None:
                warn_if_lost(call, repository.session)
            elif not (include or exclude or report.files_skipped):
                call.warn(f"the catalog has no versions of files from {as_of}: `cafcat runs` lists the ingests")
    first = "interrupted; " if report.interrupted else ""
    failed = f", failed {report.files_failed}{_remedy(report)}" if report.files_failed else ""
    there = f", {report.files_there} there already" if report.files_there else ""
    skipped = f", skipped {report.files_skipped} with too short paths" if report.files_skipped else ""
    work = f"{format_size(report.bytes)}, {progress.seconds:.1f} s"
    line = f"{first}extracted {plural(report.files, 'file')}{there}{failed}{skipped}, {work}"
    summary = asdict(report) | {"failed": [problem._asdict() for problem in report.failed]}
    found = report.files or report.files_there or report.files_skipped or report.files_failed
    if include and not found and not report.interrupted:
        warn_of_no_match(call, include, exclude or (), "paths in the catalog")
    call.summarize({"summary": summary}, [line])
    if report.interrupted:
        return INTERRUPTED
    if progress.problems[ProblemKind.CORRUPT]:
        return DAMAGE
    return SOME_FAILED if report.files_failed else 0


def _remedy(report: "ExtractReport") -> str:
    """Return what to do about files that exist already; "" if none of the listed failures is such a file."""
    from cafcat.reading.output_errors import FILE_EXISTS

    exist = any(problem.message == FILE_EXISTS for problem in report.failed)
    return " (--force overwrites existing files)" if exist else ""


def register(app: typer.Typer) -> None:
    """Add `cafcat extract` to the commands of the program."""
    panels = {"Choosing files": ("include", "exclude", "files_from", "null")}
    folder = "-C DIR names the folder on disk"
    hints = OLDER_VERSIONS | dict.fromkeys(("--target", "--to", "-t", "-o", "--output"), folder)
    verb(app, "extract", extract, reads=True, measured=True, panels=panels, hints=hints)

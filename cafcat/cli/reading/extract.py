"""The command `cafcat extract`: its flags, progress and output."""

from dataclasses import asdict
from typing import Annotated

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.clusters import Cluster, SharePassword, executor_of
from cafcat.cli.errors import DAMAGE, INTERRUPTED, SOME_FAILED
from cafcat.cli.reading.get import Explain, Force
from cafcat.model import ProblemKind
from cafcat.support.arguments import parse_text
from cafcat.support.quantities import format_size, plural

__all__ = ["register"]


def extract(
    call: Call,
    *,
    directory: Annotated[
        str, typer.Option("--directory", "-C", metavar="DIR", help="Directory to write to; created if missing.")
    ],
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="PREFIX",
            parser=parse_text,
            help="Folder or file of the catalog. Default: everything.",
            show_default=False,
        ),
    ] = "",
    force: Force = False,
    explain: Explain = False,
    cluster: Cluster = None,
    share_password: SharePassword = False,
) -> int:
    """Copy a folder of the catalog to disk, with modification times. Default: everything.

    Example: cafcat extract photos/2024 -C /tmp/photos
    """
    from cafcat.cli.progress import ShownProgress
    from cafcat.cli.stopping import StopOnSignal

    if explain:
        with call.reading() as repository:
            from cafcat.cli.reading.plans import show_plan

            return show_plan(call, repository.plan_extract(prefix))
    stop = StopOnSignal("the open file", as_json=call.json)
    with (
        executor_of(cluster) as executor,
        stop,
        call.reading() as repository,
        ShownProgress(call) as progress,
    ):
        progress.stop = stop
        report = repository.with_progress(progress).extract(
            prefix, directory, overwrite=force, executor=executor, share_password=share_password
        )
    first = "interrupted; " if report.interrupted else ""
    failed = f", failed {report.files_failed}" if report.files_failed else ""
    work = f"{format_size(report.bytes)}, {progress.seconds:.1f} s"
    line = f"{first}extracted {plural(report.files, 'file')}{failed}, {work}"
    summary = asdict(report) | {"failed": [problem._asdict() for problem in report.failed]}
    call.summarize({"summary": summary}, [line])
    if report.interrupted:
        return INTERRUPTED
    if progress.problems[ProblemKind.CORRUPT]:
        return DAMAGE
    return SOME_FAILED if report.files_failed else 0


def register(app: typer.Typer) -> None:
    """Add `cafcat extract` to the commands of the program."""
    verb(app, "extract", extract, reads=True, measured=True)

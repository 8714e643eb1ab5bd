"""`cafcat snapshot`."""

from dataclasses import asdict
from typing import Annotated

import typer

from cafcat.cli.arguments import parse_new_file, parse_text
from cafcat.cli.call import Call, verb
from cafcat.cli.errors import INTERRUPTED
from cafcat.cli.output import plural
from cafcat.cli.progress import ShownProgress
from cafcat.cli.stopping import interrupted_by_signals
from cafcat.support.quantities import format_size

__all__ = ["register"]


def snapshot(
    call: Call,
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", parser=parse_new_file, help="The file to write.")
    ],
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="PREFIX", parser=parse_text, help="Folder of the catalog; none or . is all.", show_default=False
        ),
    ] = "",
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite a file that is there.")] = False,
) -> int:
    """Write where files are into one file, to read them without the database.

    Example: cafcat snapshot photos/2024 -o photos.cafs
    """
    with call.repository() as repository, ShownProgress(call) as progress:
        try:
            with interrupted_by_signals():
                report = repository.snapshot(output, prefix, overwrite=force, progress=progress)
        except KeyboardInterrupt:
            progress.end()
            call.output.notice("interrupted; nothing was written")
            return INTERRUPTED
    what = f"{plural(report.files, 'file')} ({format_size(report.bytes)}) in {plural(report.chunks, 'chunk')}"
    line = f"snapshot of {what} as of {report.made_at}: {call.output.shown(output)}"
    call.summarize(asdict(report), [f"{line}, {format_size(report.size_bytes)}"])
    return 0


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    verb(app, "snapshot")(snapshot)

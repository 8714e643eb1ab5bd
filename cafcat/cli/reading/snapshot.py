"""The command `cafcat snapshot`: its flags, progress and output."""

from dataclasses import asdict
from typing import Annotated

import typer

from cafcat import __version__
from cafcat.cli.call import Call, verb
from cafcat.cli.operation import operation
from cafcat.cli.progress import ShownProgress
from cafcat.cli.reading.lost import warn_if_lost
from cafcat.support.arguments import parse_new_file, parse_text
from cafcat.support.quantities import format_size, plural

__all__ = ["register"]


def snapshot(
    call: Call,
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", parser=parse_new_file, help="File to write.")
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
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite an existing file.")] = False,
) -> int:
    """Write the locations of files into one file. Programs can then read the files without the database.

    Example: cafcat snapshot photos/2024 -o photos.cafs
    """
    with operation(call, ShownProgress(call), if_interrupted="nothing was written") as session:
        from cafcat.session import output_of
        from cafcat.snapshots.writing import write_snapshot

        target = output_of(session.settings, output, overwrite=force)
        report = write_snapshot(session.catalog, prefix, target, version=__version__, progress=session.progress)
        if not report.files:
            warn_if_lost(call, session)
    what = f"{plural(report.files, 'file')} ({format_size(report.bytes)}) in {plural(report.chunks, 'chunk')}"
    line = f"snapshot of {what} as of {report.made_at}: {call.output.shown(output)}"
    call.summarize(asdict(report), [f"{line}, {format_size(report.size_bytes)}"])
    return 0


def register(app: typer.Typer) -> None:
    """Add `cafcat snapshot` to the commands of the program."""
    verb(app, "snapshot", snapshot)

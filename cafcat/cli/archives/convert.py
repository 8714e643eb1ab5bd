"""The commands `cafcat convert` and `export`, which write an archive as a file of the user."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final, TypeVar

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.errors import INTERRUPTED
from cafcat.cli.options import ZeroPadding
from cafcat.cli.progress import ShownProgress
from cafcat.cli.reading.lost import warn_if_lost
from cafcat.cli.stopping import interrupted_by_signals
from cafcat.errors import InvalidInput
from cafcat.stores.registry import find_kind
from cafcat.support.arguments import parse_new_file, parse_text
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.operations.convert.run import ConvertReport
    from cafcat.operations.export.run import ExportReport
    from cafcat.settings.settings import Settings

__all__ = ["register", "settings_for"]

_Format = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="FORMAT", help="Format of the new archive. Default: found by the suffix of its name."
    ),
]
_Overwrite = Annotated[bool, typer.Option("--overwrite", "--force", "-f", help="Replace an existing file.")]
_NOTHING: Final = "interrupted; nothing was written"
_NO_END: Final = "interrupted; the archive has no end"

Report = TypeVar("Report")


def settings_for(call: Call, archive: str) -> "Settings | None":
    """Return the settings; None if no setting has an effect on opening an archive, as for a local file.

    A local archive can therefore be read even if a setting is invalid.

    Args:
        call: The call of the command.
        archive: The archive, as the user named it.

    Raises:
        InvalidInput: The settings are needed, and one is invalid.
    """
    kind = find_kind(archive)
    return call.settings() if kind is not None and kind.options else None


def convert(
    call: Call,
    *,
    file: Annotated[
        str, typer.Argument(metavar="IN", help="Archive file, s3://bucket/key, or folder with a bundle.")
    ],
    output: Annotated[str, typer.Argument(metavar="OUT", parser=parse_new_file, help="File to write.")],
    format: _Format = None,
    input_format: Annotated[
        str | None,
        typer.Option("--input-format", metavar="FORMAT", help="Format of IN. Default: found by the content."),
    ] = None,
    zero_padding: ZeroPadding = False,
    overwrite: _Overwrite = False,
) -> int:
    """Write the contents of an archive into a new archive. No catalog is needed.

    Example: cafcat convert old.car new.caf
    """
    from cafcat.without_catalog import convert as rewrite

    def work(progress: ShownProgress) -> "ConvertReport":
        settings = settings_for(call, file)
        return rewrite(
            file,
            output,
            format=format,
            overwrite=overwrite,
            settings=settings,
            progress=progress,
            input_format=input_format,
            zero_padding=zero_padding,
        )

    report = _made(call, work)
    if report is None:
        return INTERRUPTED
    what = f"{plural(report.files, 'file')} ({format_size(report.bytes)}) from {report.input_format}"
    line = f"converted {what} to {report.format}: {call.output.shown(output)}"
    call.summarize(asdict(report), [f"{line}, {format_size(report.size_bytes)}"])
    return 0


def export(
    call: Call,
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Archive to write; - for standard output.")
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
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="tar, zip, caf, car, chunkio or databundle. Default: found by the suffix of FILE.",
        ),
    ] = None,
    overwrite: _Overwrite = False,
) -> int:
    """Write folders of the catalog, or everything, into one archive. Any program can open a tar or zip.

    Example: cafcat export photos/2024 -o photos.tar
    """
    call.require_home()
    target = _stdout(call) if output == "-" else output

    def work(progress: ShownProgress) -> "ExportReport":
        with call.repository() as repository, call.explaining(repository):
            writing = repository.with_progress(progress)
            report = writing.export(prefixes or [], target, format=format, overwrite=overwrite)
            if not report.files:
                warn_if_lost(call, repository.session)
            return report

    report = _made(call, work, _NOTHING if output != "-" else _NO_END)
    if report is None:
        return INTERRUPTED
    what = f"{plural(report.files, 'file')} ({format_size(report.bytes)}) as of {report.made_at}"
    name = "standard output" if output == "-" else call.output.shown(output)
    line = f"exported {what} to {report.format}: {name}, {format_size(report.size_bytes)}"
    if output != "-":
        call.summarize(asdict(report), [line])
    elif call.json:
        call.output.error_document({"summary": asdict(report)})
    elif not call.quiet:
        call.output.notice(line)
    return 0


def _stdout(call: Call) -> BinaryIO:
    """Return standard output as a binary stream. Raises InvalidInput if it is a terminal."""
    if sys.stdout.isatty():
        raise InvalidInput("an archive is not written to a terminal", hint="name a file with -o, or use a pipe")
    call.output.flush()
    return sys.stdout.buffer


def _made(call: Call, function: Callable[[ShownProgress], Report], if_interrupted: str = _NOTHING) -> Report | None:
    """Call a function that writes an archive, and return its report.

    Args:
        call: The call of the command.
        function: Called with the display of the progress.
        if_interrupted: The message if a signal interrupts the function.

    Returns:
        The report; None if a signal interrupted the function. In this case a message was printed.
    """
    with ShownProgress(call) as progress:
        try:
            with interrupted_by_signals():
                return function(progress)
        except KeyboardInterrupt:
            progress.end()
            call.output.notice(if_interrupted)
            return None


def register(app: typer.Typer) -> None:
    """Add `cafcat export` and `convert` to the commands of the program."""
    verb(app, "convert", convert)
    verb(app, "export", export)

"""`cafcat adopt`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.errors import INTERRUPTED, SOME_FAILED
from cafcat.cli.options import InputFormat, ZeroPadding, prefix_option
from cafcat.cli.output import plural
from cafcat.cli.progress import ShownProgress
from cafcat.cli.stopping import StopOnSignal
from cafcat.model import OnConflict
from cafcat.support.quantities import format_size

if TYPE_CHECKING:
    from cafcat.operations.adopt.run import AdoptedFile, AdoptReport

__all__ = ["register"]


class _Progress(ShownProgress):
    """With -v, a line for each archive."""

    def adopted(self, archive: "AdoptedFile") -> None:
        if not self._call.verbose:
            return
        if self._call.json:
            self._call.output.document(archive._asdict())
        else:
            files = f"{plural(archive.files, 'file')}, {format_size(archive.bytes)}"
            self._print(f"{archive.archive}: {archive.format}, {files}, chunk {archive.uuid}")


def adopt(
    call: Call,
    *,
    archives: Annotated[
        list[str],
        typer.Argument(
            metavar="ARCHIVE...", help="Files, or s3://bucket/key; folders of bundles.", show_default=False
        ),
    ],
    prefix: Annotated[str, prefix_option("Put the names in the archives below this folder.")] = "",
    on_conflict: Annotated[
        OnConflict, typer.Option("--on-conflict", help="What to do with a path that the catalog has.")
    ] = OnConflict.FAIL,
    format: InputFormat = None,
    zero_padding: ZeroPadding = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read all, change nothing.")] = False,
) -> int:
    """Enter archives that are there already in the catalog, in place: their bytes stay as and where they are.

    Example: cafcat adopt --prefix datasets old/*.car s3://bucket/logs/app.clp
    """
    stop = StopOnSignal("the archive", as_json=call.json, finishes=False)
    with stop, call.repository() as repository, _Progress(call) as progress:
        try:
            report = repository.custody.adopt(
                archives,
                prefix=prefix,
                on_conflict=on_conflict,
                dry_run=dry_run,
                format=format,
                zero_padding=zero_padding,
                progress=progress,
                on_adopted=progress.adopted,
                should_stop=stop,
            )
        except KeyboardInterrupt:
            progress.end()
            call.output.notice("interrupted; what was adopted before stays so")
            return INTERRUPTED
    call.summarize({"summary": asdict(report)}, [_summary(report)], report.failed)
    return INTERRUPTED if report.interrupted else SOME_FAILED if report.failed or report.files_failed else 0


def _summary(report: "AdoptReport") -> str:
    would = "would adopt" if report.dry_run else "adopted"
    files = f"{plural(report.files, 'file')}, {format_size(report.bytes)}"
    parts = [f"{would} {plural(report.archives, 'archive')}: {files}"]
    if report.skipped:
        parts.append(f"{plural(report.skipped, 'file')} skipped")
    if report.files_failed:
        parts.append(f"{plural(report.files_failed, 'file')} failed")
    if report.unchecked_blocks:
        parts.append(f"{plural(report.unchecked_blocks, 'block')} with a hash function that is not checked")
    if report.failed:
        parts.append(f"{plural(len(report.failed), 'archive')} refused")
    return ("interrupted; " if report.interrupted else "") + "; ".join(parts)


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    verb(app, "adopt", commits=True)(adopt)

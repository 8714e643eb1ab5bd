"""The command `cafcat adopt`: its flags, progress and output."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.errors import INTERRUPTED, SOME_FAILED
from cafcat.cli.operation import operation
from cafcat.cli.progress import ShownProgress
from cafcat.events import ArchiveAdopted, Event
from cafcat.operations.adopt.options import AdoptOptions
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.operations.adopt.report import AdoptReport

__all__ = ["register"]


class _Progress(ShownProgress):
    """Progress of `cafcat adopt`. With -v, prints each adopted archive: on stderr, with --json on stdout."""

    def show(self, event: Event) -> None:
        if not isinstance(event, ArchiveAdopted) or not self._call.verbose:
            return
        if self._call.json:
            self._call.output.document(event._asdict())
        else:
            files = f"{plural(event.files, 'file')}, {format_size(event.bytes)}"
            self._print(f"{event.archive}: {event.format}, {files}, chunk {event.uuid}")


def adopt(call: Call, options: AdoptOptions) -> int:
    """Enter existing archives into the catalog. Their bytes stay unchanged where they are.

    Example: cafcat adopt --prefix datasets old/*.car s3://bucket/logs/app.clp
    """
    with operation(
        call,
        _Progress(call),
        at_hand="any open archive",
        finishes=False,
        if_interrupted="adopted archives stay in the catalog",
        makes_catalog=True,
    ) as session:
        from cafcat.operations.adopt.run import run

        report = run(session, options)
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
    """Add `cafcat adopt` to the commands of the program."""
    verb(app, "adopt", adopt, commits=True, measured=True)

"""`cafcat recover`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.errors import INTERRUPTED, SOME_FAILED
from cafcat.cli.options import ONLY_IN_STORE
from cafcat.cli.output import plural
from cafcat.cli.progress import ShownProgress
from cafcat.cli.stopping import StopOnSignal
from cafcat.support.quantities import format_size

if TYPE_CHECKING:
    from cafcat.operations.recover.left_copies import RecoveredCopy
    from cafcat.operations.recover.run import RecoveredChunk, RecoverReport

__all__ = ["register"]


class _Progress(ShownProgress):
    """With -v, a line for each chunk."""

    def __init__(self, call: Call, *, dry_run: bool) -> None:
        super().__init__(call)
        self._would = "would be " if dry_run else ""

    def settled(self, chunk: "RecoveredChunk | RecoveredCopy") -> None:
        if self._call.verbose and self._call.json:
            self._call.output.document(chunk._asdict())
        elif self._call.verbose:
            self._print(self._in_words(chunk))

    def _in_words(self, chunk: "RecoveredChunk | RecoveredCopy") -> str:
        from cafcat.operations.recover.left_copies import RecoveredCopy

        why = f": {chunk.reason}" if chunk.reason else ""
        if isinstance(chunk, RecoveredCopy):
            return f"copy of chunk {chunk.copy_of} in {chunk.store} {self._would}{chunk.outcome}{why}"
        whole = f": {plural(chunk.files, 'file')}, {format_size(chunk.size_bytes)}" if chunk.size_bytes else ""
        return f"chunk {chunk.uuid} {self._would}{chunk.outcome}{whole}{why}"


def recover(
    call: Call,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")] = False,
) -> int:
    """Settle what ingests left behind that were killed: adopt whole chunks, remove half ones.

    Example: cafcat recover --dry-run -v
    """
    stop = StopOnSignal("the check of a chunk", as_json=call.json)
    with stop, call.repository() as repository, _Progress(call, dry_run=dry_run) as progress:
        try:
            report = repository.recover(
                store=repository.settings.store_from_flag,
                dry_run=dry_run,
                progress=progress,
                on_settled=progress.settled,
                should_stop=stop,
            )
        except KeyboardInterrupt:
            progress.end()
            call.output.notice("interrupted; what was settled before stays so, the next recover goes on")
            return INTERRUPTED
    call.summarize({"summary": asdict(report)}, _summary(report), report.failed)
    return INTERRUPTED if report.interrupted else SOME_FAILED if report.failed else 0


def _summary(report: "RecoverReport") -> list[str]:
    """A line of what was done, and one for each kind of thing that was left alone."""
    lines = [("interrupted; " if report.interrupted else "") + _done(report)]
    if report.still_leased:
        are, their = ("is", "its") if report.still_leased == 1 else ("are", "the last")
        chunks = plural(report.still_leased, "chunk")
        lines.append(f"{chunks} {are} being written: {their} lease ends at {report.leases_end_at}")
    unknown = ((report.unknown_uploads, "upload"), (report.unknown_objects, "object"))
    if found := [plural(count, word) for count, word in unknown if count]:
        lines.append(f"left alone, as no chunk of this catalog names them: {' and '.join(found)}")
    return lines


def _done(report: "RecoverReport") -> str:
    would = "would have " if report.dry_run else ""
    adopted = f"adopted {plural(report.adopted, 'chunk')} ({_files(report)})"
    done = [
        text
        for count, text in (
            (report.adopted, adopted),
            (report.abandoned, f"abandoned {plural(report.abandoned, 'chunk')}"),
            (report.cleaned, f"cleaned up {plural(report.cleaned, 'abandoned chunk')}"),
            (report.copies_adopted, f"adopted {_copies(report.copies_adopted)}"),
            (report.copies_removed, f"removed what was left of {_copies(report.copies_removed)}"),
            (report.backups_removed, f"removed what was left of {plural(report.backups_removed, 'backup')}"),
            (report.records_written, f"wrote {plural(report.records_written, 'journal record')} into the store"),
            (report.uploads_removed, f"removed {plural(report.uploads_removed, 'late upload')}"),
            (report.objects_removed, f"removed {plural(report.objects_removed, 'late object')}"),
        )
        if count
    ]
    nothing = "nothing was recovered" if report.failed or report.interrupted else "nothing to recover"
    return would + ", ".join(done) if done else nothing


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count} copies"


def _files(report: "RecoverReport") -> str:
    """ "3 files, 1.2 kB; 2 superseded"."""
    files = f"{plural(report.files_adopted, 'file')}, {format_size(report.bytes_adopted)}"
    return f"{files}; {report.files_skipped} superseded" if report.files_skipped else files


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    verb(app, "recover", store=ONLY_IN_STORE, commits=True)(recover)

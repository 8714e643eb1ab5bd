"""The command `cafcat recover`: its flags, progress and output."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.errors import INTERRUPTED, SOME_FAILED
from cafcat.cli.operation import operation
from cafcat.cli.options import ONLY_IN_STORE
from cafcat.cli.output import printable
from cafcat.cli.progress import ShownProgress
from cafcat.events import ChunkRecovered, CopyRecovered, Event, ObjectLeftAlone
from cafcat.operations.recover.options import RecoverOptions
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.operations.recover.report import RecoverReport

__all__ = ["register"]


class _Progress(ShownProgress):
    """Progress of `cafcat recover`. With -v, prints each chunk, copy and unknown object: with --json on stdout."""

    def __init__(self, call: Call, *, dry_run: bool) -> None:
        super().__init__(call)
        self._would = "would be " if dry_run else ""

    def show(self, event: Event) -> None:
        if not isinstance(event, ChunkRecovered | CopyRecovered | ObjectLeftAlone):
            return
        if self._call.verbose and self._call.json:
            self._call.output.document(event._asdict())
        elif self._call.verbose:
            self._print(self._in_words(event))

    def _in_words(self, event: ChunkRecovered | CopyRecovered | ObjectLeftAlone) -> str:
        if isinstance(event, ObjectLeftAlone):
            upload = "unfinished upload of " if event.is_upload else ""
            whose = "that the catalog does not have" if event.is_needed else "of a chunk without live files"
            copy = f", a copy {whose}" if event.copy_of else ""
            return f"left alone: {upload}{printable(event.object)}{copy}"
        why = f": {event.reason}" if event.reason else ""
        if isinstance(event, CopyRecovered):
            return f"copy of chunk {event.copy_of} in {event.store} {self._would}{event.outcome}{why}"
        whole = f": {plural(event.files, 'file')}, {format_size(event.size_bytes)}" if event.size_bytes else ""
        return f"chunk {event.uuid} {self._would}{event.outcome}{whole}{why}"


def recover(call: Call, options: RecoverOptions) -> int:
    """Clean up after killed writers. Adopts their complete chunks, and removes incomplete chunks.

    Example: cafcat recover --dry-run -v
    """
    with operation(
        call,
        _Progress(call, dry_run=options.dry_run),
        at_hand="any open check",
        if_interrupted="recovered chunks stay as they are; run recover again to continue",
    ) as session:
        from cafcat.operations.recover.run import run

        report = run(session, options)
    call.summarize({"summary": asdict(report)}, _summary(report, lists_objects=call.verbose), report.failed)
    return INTERRUPTED if report.interrupted else SOME_FAILED if report.failed else 0


def _summary(report: "RecoverReport", *, lists_objects: bool) -> list[str]:
    """Return the lines that `cafcat recover` prints at its end: the results, and the objects that it left alone.

    Args:
        report: The results.
        lists_objects: True if the objects were listed before (-v).
    """
    lines = [("interrupted; " if report.interrupted else "") + _done(report)]
    if report.still_leased:
        are, their = ("is", "its") if report.still_leased == 1 else ("are", "the last")
        chunks = plural(report.still_leased, "chunk")
        lines.append(f"{chunks} {are} being written: {their} lease ends at {report.leases_end_at}")
    unknown = ((report.unknown_uploads, "upload"), (report.unknown_objects, "object"))
    if found := [plural(count, word) for count, word in unknown if count]:
        names = " and ".join(found) + ("" if lists_objects else " (-v lists them)")
        lines.append(f"left alone, as no chunk of this catalog names them: {names}")
    if report.unknown_objects:
        lines += [
            "`cafcat inspect -l` lists the files in such an object, and `cafcat adopt --on-conflict skip` enters "
            "them; if no other catalog uses the store, an object whose files nobody needs can be deleted",
            "`cafcat rebuild` of all stores with an empty catalog enters all whole objects of this catalog, but "
            "loses access keys, events and the results of verify",
        ]
    return lines + _copies_left_alone(report, lists_objects=lists_objects)


def _copies_left_alone(report: "RecoverReport", *, lists_objects: bool) -> list[str]:
    lines = []
    if count := report.unknown_copies:
        chunks, them = ("chunks", "them") if count > 1 else ("a chunk", "it")
        copies = f"{plural(count, 'copy')} of {chunks}, missing in the catalog"
        shows = "" if lists_objects else "; -v shows the store"
        lines.append(f"left alone: {copies}: `cafcat copy --all --to STORE` enters {them}{shows}")
    if count := report.unneeded_copies:
        chunks, them = ("chunks", "them") if count > 1 else ("a chunk", "it")
        shows = "" if lists_objects else f" (-v shows {them})"
        copies = f"{plural(count, 'copy')} of {chunks} without live files{shows}"
        lines.append(f"left alone: {copies}: delete {them}, or take the files back with cafcat adopt")
    return lines


def _done(report: "RecoverReport") -> str:
    adopt, abandon, clean, remove, write, record = (
        ("adopt", "abandon", "clean", "remove", "write", "record")
        if report.dry_run
        else ("adopted", "abandoned", "cleaned", "removed", "wrote", "recorded")
    )
    done = [
        text
        for count, text in (
            (report.adopted, f"{adopt} {plural(report.adopted, 'chunk')} ({_files(report)})"),
            (report.abandoned, f"{abandon} {plural(report.abandoned, 'chunk')}"),
            (report.cleaned, f"{clean} up {plural(report.cleaned, 'abandoned chunk')}"),
            (report.copies_adopted, f"{adopt} {plural(report.copies_adopted, 'copy')}"),
            (report.copies_removed, f"{remove} the remains of {plural(report.copies_removed, 'copy')}"),
            (report.backups_removed, f"{remove} the remains of {plural(report.backups_removed, 'backup')}"),
            (report.records_written, f"{write} {plural(report.records_written, 'journal record')} into the store"),
            (report.runs_failed, f"{record} the end of {plural(report.runs_failed, 'ingest')} whose process died"),
            (report.uploads_removed, f"{remove} {plural(report.uploads_removed, 'late upload')}"),
            (report.objects_removed, f"{remove} {plural(report.objects_removed, 'late object')}"),
        )
        if count
    ]
    nothing = "nothing was recovered" if report.failed or report.interrupted else "nothing to recover"
    return ("would " if report.dry_run else "") + ", ".join(done) if done else nothing


def _files(report: "RecoverReport") -> str:
    """Return number and size of the files in adopted chunks as text, such as "3 files, 1.2 kB; 2 superseded"."""
    files = f"{plural(report.files_adopted, 'file')}, {format_size(report.bytes_adopted)}"
    return f"{files}; {report.files_skipped} superseded" if report.files_skipped else files


def register(app: typer.Typer) -> None:
    """Add `cafcat recover` to the commands of the program."""
    verb(app, "recover", recover, store=ONLY_IN_STORE, commits=True, measured=True)

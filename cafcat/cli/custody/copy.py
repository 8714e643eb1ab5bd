"""The command `cafcat copy`: its flags, progress and output."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.clusters import Cluster, executor_of
from cafcat.cli.errors import DAMAGE, INTERRUPTED, SOME_FAILED
from cafcat.cli.operation import operation
from cafcat.cli.progress import ShownProgress
from cafcat.cli.reading.lost import warn_if_lost
from cafcat.errors import InvalidInput
from cafcat.events import ChunkCopied, Event
from cafcat.operations.copy.options import CopyOptions
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.operations.copy.report import CopyReport

__all__ = ["register"]


class _Progress(ShownProgress):
    """Progress of `cafcat copy`. With -v, prints each chunk and its outcome: on stderr, with --json on stdout."""

    def __init__(self, call: Call, *, dry_run: bool) -> None:
        super().__init__(call)
        self._dry_run = dry_run

    def show(self, event: Event) -> None:
        if not isinstance(event, ChunkCopied):
            return
        if self._call.verbose and self._call.json:
            self._call.output.document(event._asdict())
        elif self._call.verbose:
            words = _WORDS_OF_DRY_RUN if self._dry_run else _WORDS
            self._print(f"chunk {event.uuid} {words[event.outcome]}, {format_size(event.size_bytes)}")


_WORDS = {
    "copied": "copied",
    "replaced": "copied in place of a damaged copy",
    "found": "found: the store had these very bytes",
    "there": "is there already",
    "own": "is in that store itself",
}
_WORDS_OF_DRY_RUN = _WORDS | {
    "copied": "would be copied",
    "replaced": "would be copied in place of a damaged copy",
    "found": "would be compared with the object there",
}


def copy(
    call: Call,
    options: CopyOptions,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Copy all chunks that have live files.")] = False,
    cluster: Cluster = None,
) -> int:
    """Copy chunks into a second store. Reads use the copy when the chunk itself cannot be read or is damaged.

    Example: cafcat copy --all --to s3://backups/cafcat
    """
    choices = sum((bool(options.chunks), everything, options.prefix is not None))
    if choices != 1:
        problem = "chunks are chosen in several ways" if choices else "no chunk is chosen"
        raise InvalidInput(problem, hint="name chunks, or give --all, or --prefix FOLDER")
    with (
        executor_of(cluster, share_password=options.share_password) as executor,
        operation(
            call,
            _Progress(call, dry_run=options.dry_run),
            at_hand="any open copy",
            if_interrupted="finished copies stay; run the same copy again to continue",
        ) as session,
    ):
        from cafcat.operations.copy.run import run

        report = run(session, replace(options, executor=executor))
        if everything and not (report.copied or report.there or report.own or report.failed):
            warn_if_lost(call, session)
    call.summarize({"summary": asdict(report)}, [_summary(report), *_left_out(report)], report.failed)
    if report.interrupted:
        return INTERRUPTED
    return DAMAGE if report.damaged else SOME_FAILED if report.failed else 0


def _summary(report: "CopyReport") -> str:
    size = f" ({format_size(report.bytes_copied)})"
    copies = "copy" if report.replaced == 1 else "copies"
    is_first = not (report.copied or report.replaced or report.found)
    there = plural(report.there, "chunk") if is_first else str(report.there)
    copied, replaced, found = ("copy", "replace", "find") if report.dry_run else ("copied", "replaced", "found")
    done = [
        text
        for count, text in (
            (report.copied, f"{copied} {plural(report.copied, 'chunk')}{size}"),
            (
                report.replaced,
                f"{replaced} {report.replaced} damaged or missing {copies}{'' if report.copied else size}",
            ),
            (report.found, f"{found} {plural(report.found, 'chunk')} there"),
            (report.there, f"{there} had been there before"),
            (report.own, f"not copied, because the original is there: {plural(report.own, 'chunk')}"),
            (report.chunks_failed, f"{report.chunks_failed} failed"),
        )
        if count
    ]
    if report.interrupted:
        return "interrupted; " + (", ".join(done) or "nothing was copied")
    would = "would " if report.dry_run and report.copied + report.replaced + report.found else ""
    return would + (", ".join(done) or "nothing to copy")


def _left_out(report: "CopyReport") -> list[str]:
    """Return a line about the adopted archives that were not copied; no line without any."""
    if not report.adopted:
        return []
    archives = plural(report.adopted, "adopted archive")
    return [f"left out {archives}: `cafcat repack --chunk UUID` moves the files of one into new chunks"]


def not_copied_yet(stores: Sequence[str]) -> list[str]:
    """Return a line that new chunks have no copies in some stores yet; no line without stores.

    Args:
        stores: URLs of the stores that have copies of the old chunks.
    """
    commands = "; ".join(f"cafcat copy --all --to {quote(store)}" for store in stores)
    return [f"the new chunks have no second copy yet, unlike the old chunks: {commands}"] if stores else []


def register(app: typer.Typer) -> None:
    """Add `cafcat copy` to the commands of the program."""
    of_chunks = (
        "--to STORE is the folder or URL for the copies of chunks (`cafcat ingest`, not `copy`, packs a folder)"
    )
    verb(app, "copy", copy, commits=True, moves=True, measured=True, hints={"--to": of_chunks})

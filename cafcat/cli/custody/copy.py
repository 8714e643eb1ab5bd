"""`cafcat copy`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.cli.arguments import parse_text
from cafcat.cli.call import Call, verb
from cafcat.cli.errors import DAMAGE, INTERRUPTED, SOME_FAILED
from cafcat.cli.options import JoinStore
from cafcat.cli.output import plural
from cafcat.cli.progress import ShownProgress
from cafcat.cli.stopping import StopOnSignal
from cafcat.errors import InvalidInput
from cafcat.support.quantities import format_size

if TYPE_CHECKING:
    from cafcat.operations.copy.run import CopiedChunk, CopyReport

__all__ = ["register"]


class _Progress(ShownProgress):
    """With -v, a line for each chunk."""

    def taken(self, chunk: "CopiedChunk") -> None:
        if self._call.verbose and self._call.json:
            self._call.output.document(chunk._asdict())
        elif self._call.verbose:
            self._print(f"chunk {chunk.uuid} {_WORDS[chunk.outcome]}, {format_size(chunk.size_bytes)}")


_WORDS = {
    "copied": "copied",
    "found": "found: the store had these very bytes",
    "there": "is there already",
    "own": "is in that store itself",
}


def copy(
    call: Call,
    *,
    to: Annotated[str, typer.Option("--to", metavar="STORE", help="Where to: a folder, URL or name.")],
    chunks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CHUNK...", parser=parse_text, help="Uuids, or their first 8 digits.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All chunks.")] = False,
    join_store: JoinStore = False,
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", metavar="FOLDER", parser=parse_text, help="Chunks with files below FOLDER."),
    ] = None,
) -> int:
    """Copy chunks into a second store. Reads go there by themselves when a chunk is lost or damaged.

    Example: cafcat copy --all --to s3://backups/cafcat
    """
    if sum((bool(chunks), everything, prefix is not None)) != 1:
        raise InvalidInput("which chunks?", hint="either name some, or give --all, or --prefix FOLDER")
    stop = StopOnSignal("the copy of a chunk", as_json=call.json)
    with stop, call.repository() as repository, _Progress(call) as progress:
        try:
            report = repository.custody.copy(
                chunks or (),
                to=to,
                prefix=prefix,
                join_store=join_store,
                progress=progress,
                on_taken=progress.taken,
                should_stop=stop,
            )
        except KeyboardInterrupt:
            progress.end()
            call.output.notice("interrupted; what was copied before stays, the next copy goes on")
            return INTERRUPTED
    call.summarize({"summary": asdict(report)}, [_summary(report)], report.failed)
    if report.interrupted:
        return INTERRUPTED
    return DAMAGE if report.damaged else SOME_FAILED if report.failed else 0


def _summary(report: "CopyReport") -> str:
    done = [
        text
        for count, text in (
            (report.copied, f"copied {plural(report.copied, 'chunk')} ({format_size(report.bytes_copied)})"),
            (report.found, f"found {plural(report.found, 'chunk')} there"),
            (report.there, f"{report.there} had been there before"),
            (report.own, f"{plural(report.own, 'chunk')} in that store itself: these have no copy there"),
            (len(report.failed), f"{len(report.failed)} failed"),
        )
        if count
    ]
    if report.interrupted:
        return "interrupted; " + (", ".join(done) or "nothing was copied")
    return ", ".join(done) or "nothing to copy"


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    verb(app, "copy", commits=True)(copy)

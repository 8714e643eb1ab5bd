"""`cafcat repack`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cafcat.cli.arguments import parse_percent
from cafcat.cli.call import Call, verb
from cafcat.cli.errors import DAMAGE, INTERRUPTED, SOME_FAILED
from cafcat.cli.options import ONLY_IN_STORE, JoinStore, NewSize, Yes
from cafcat.cli.output import plural
from cafcat.cli.progress import ShownProgress
from cafcat.cli.stopping import StopOnSignal
from cafcat.model import DEFAULT_MAX_UNUSED
from cafcat.support.quantities import format_size, parse_size

if TYPE_CHECKING:
    from cafcat.catalog.chunks.rewriting import RewritableChunk
    from cafcat.operations.repack.run import RepackReport

__all__ = ["register"]

_MAX_UNUSED: Final = f"{DEFAULT_MAX_UNUSED:.0%}"


class _Progress(ShownProgress):
    """A line for each chunk, on stdout in a dry run, on stderr otherwise with -v."""

    def __init__(self, call: Call, *, dry_run: bool) -> None:
        super().__init__(call)
        self._dry_run = dry_run

    def chosen(self, chunk: "RewritableChunk") -> None:
        if self._call.json:
            if self._dry_run or self._call.verbose:
                self._call.output.document({"chosen": _document(chunk)})
        elif self._dry_run and not self._call.quiet:
            self._call.output.line(_line(chunk))
        elif self._call.verbose:
            self._print(_line(chunk))


def _document(chunk: "RewritableChunk") -> dict[str, object]:
    names = ("store", "size_bytes", "data_bytes", "dead_bytes", "live_bytes", "live_files")
    return {"chunk": str(chunk.uuid)} | {name: getattr(chunk, name) for name in names}


def _line(chunk: "RewritableChunk") -> str:
    share = 100 * chunk.dead_bytes / max(chunk.data_bytes, 1)
    live = f"{plural(chunk.live_files, 'live file')}, {format_size(chunk.live_bytes)}"
    return f"chunk {chunk.uuid}: {format_size(chunk.dead_bytes)} dead ({share:.0f}%); {live}"


def repack(
    call: Call,
    *,
    max_unused: Annotated[
        str, typer.Option("--max-unused", metavar="SHARE", help="Only chunks of which more is dead.")
    ] = _MAX_UNUSED,
    small: Annotated[
        int | None,
        typer.Option("--small", metavar="SIZE", parser=parse_size, help="Also chunks below this size, if several."),
    ] = None,
    max_repack_size: Annotated[
        int | None,
        typer.Option(
            "--max-repack-size", metavar="SIZE", parser=parse_size, help="Copy so much at most, as 100GB."
        ),
    ] = None,
    chunk: Annotated[
        list[str] | None, typer.Option("--chunk", metavar="UUID", help="This chunk, whatever it is; repeatable.")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="Of the new chunks; chunks of another are chosen, too."),
    ] = None,
    target_size: NewSize = None,
    join_store: JoinStore = False,
    yes: Yes = False,
) -> int:
    """Copy the live files of chunks with much dead space into new chunks. Says what it would do; --yes does it.

    Example: cafcat repack --max-unused 50% --max-repack-size 100GB --yes
    """
    share = parse_percent(max_unused, may_be_zero=True)
    stop = StopOnSignal("the open chunk", as_json=call.json)
    with stop, call.repository() as repository, _Progress(call, dry_run=not yes) as progress:
        try:
            report = repository.custody.repack(
                chunks=chunk or (),
                max_unused=share,
                small=small,
                max_repack_size=max_repack_size,
                store=repository.settings.store_from_flag,
                format=format,
                target_size=target_size,
                dry_run=not yes,
                join_store=join_store,
                progress=progress,
                on_chosen=progress.chosen,
                should_stop=stop,
            )
        except KeyboardInterrupt:
            progress.end()
            call.output.notice("interrupted; what was committed before stays, all else is as it was")
            return INTERRUPTED
    call.summarize({"summary": asdict(report)}, _summary(report), report.failed)
    return _exit_code(report)


def _exit_code(report: "RepackReport") -> int:
    if report.interrupted:
        return INTERRUPTED
    return DAMAGE if report.files_damaged else SOME_FAILED if report.failed else 0


def _summary(report: "RepackReport") -> list[str]:
    lines = [("interrupted; " if report.interrupted else "") + _done(report)]
    if report.files_changed:
        lines.append(f"{plural(report.files_changed, 'file')} replaced or removed meanwhile: left as they are now")
    if report.files_damaged:
        lines.append(f"{plural(report.files_damaged, 'damaged file')} left where they are: run cafcat repair")
    if report.taken:
        lines.append(f"{plural(report.taken, 'chunk')} left alone: their files are being copied right now")
    if report.waiting:
        lines.append(f"{plural(report.waiting, 'chunk')} left for another time: --max-repack-size")
    if report.dry_run and report.chunks:
        lines.append("run it again with --yes")
    return lines


def _done(report: "RepackReport") -> str:
    if not report.chunks:
        return "nothing to repack"
    files = f"{plural(report.files_moved, 'live file')} ({format_size(report.bytes_moved)})"
    dead = f"{format_size(report.bytes_dead)} dead"
    if report.dry_run:
        return f"would copy {files} out of {plural(report.chunks, 'chunk')}, with {dead}"
    written = f"{plural(report.chunks_written, 'new chunk')} ({format_size(report.bytes_written)})"
    retired = f"{report.chunks_retired} of {plural(report.chunks, 'chunk')} retired: prune removes them"
    return f"copied {files} into {written}; {retired}"


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    verb(app, "repack", store=ONLY_IN_STORE, commits=True)(repack)

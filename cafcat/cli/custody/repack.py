"""The command `cafcat repack`: its flags, progress and output."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.clusters import Cluster, executor_of
from cafcat.cli.confirming import DryRun, confirm
from cafcat.cli.custody.copy import not_copied_yet
from cafcat.cli.errors import DAMAGE, INTERRUPTED, SOME_FAILED
from cafcat.cli.operation import operation
from cafcat.cli.options import ONLY_IN_STORE
from cafcat.cli.progress import ShownProgress
from cafcat.events import ChunkChosen, Event
from cafcat.operations.repack.options import RepackOptions
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.operations.repack.report import RepackReport

__all__ = ["register"]


class _Progress(ShownProgress):
    """Progress of `cafcat repack`. In a dry run, and with -v, prints each chunk that is chosen to be rewritten.

    It is printed on stdout in a dry run and with --json, else on stderr. In a dry run, --quiet suppresses it.
    """

    def __init__(self, call: Call, *, dry_run: bool) -> None:
        super().__init__(call)
        self._dry_run = dry_run

    def show(self, event: Event) -> None:
        if not isinstance(event, ChunkChosen):
            return
        if self._call.json:
            if self._dry_run or self._call.verbose:
                self._call.output.document({"chosen": _document(event)})
        elif self._dry_run and not self._call.quiet:
            self._call.output.line(_line(event))
        elif self._call.verbose:
            self._print(_line(event))


def _document(chunk: ChunkChosen) -> dict[str, object]:
    names = ("store", "size_bytes", "data_bytes", "dead_bytes", "live_bytes", "live_files")
    return {"chunk": chunk.chunk} | {name: getattr(chunk, name) for name in names}


def _line(chunk: ChunkChosen) -> str:
    share = 100 * chunk.dead_bytes / max(chunk.data_bytes, 1)
    live = f"{plural(chunk.live_files, 'live file')}, {format_size(chunk.live_bytes)}"
    return f"chunk {chunk.chunk}: {format_size(chunk.dead_bytes)} dead ({share:.0f}%); {live}"


def repack(call: Call, options: RepackOptions, *, cluster: Cluster = None, only_show: DryRun = False) -> int:
    """Rewrite chunks with much dead space. Shows them first, and asks, unless --yes is given.

    The live files of these chunks are copied into new chunks.

    Example: cafcat repack --max-unused 50% --max-repack-size 100GB --yes
    """
    if not options.dry_run and not only_show:
        return _repack(call, options, cluster)[0]
    code, report = _repack(call, replace(options, dry_run=True), cluster)
    if code or only_show or not report.chunks:
        return code
    confirm(call, f"Rewrite {plural(report.chunks, 'chunk')}?")
    return _repack(call, replace(options, dry_run=False), cluster)[0]


def _repack(call: Call, options: RepackOptions, cluster: str | None) -> tuple[int, "RepackReport"]:
    """Run the operation, print its summary, and return exit code and report."""
    with (
        executor_of(cluster, share_password=options.share_password) as executor,
        operation(
            call,
            _Progress(call, dry_run=options.dry_run),
            at_hand="any open chunk",
            if_interrupted="committed chunks stay; everything else is unchanged",
        ) as session,
    ):
        from cafcat.operations.repack.run import run

        report = run(session, replace(options, executor=executor))
    call.summarize({"summary": asdict(report)}, _summary(report, options), report.failed)
    return _exit_code(report), report


def _exit_code(report: "RepackReport") -> int:
    if report.interrupted:
        return INTERRUPTED
    return DAMAGE if report.files_damaged else SOME_FAILED if report.failed else 0


def _summary(report: "RepackReport", options: RepackOptions) -> list[str]:
    lines = [("interrupted; " if report.interrupted else "") + _done(report, options)]
    if report.files_changed:
        lines.append(f"{plural(report.files_changed, 'file')} replaced or removed meanwhile: left as they are now")
    if report.files_damaged:
        lines.append(
            f"{plural(report.files_damaged, 'damaged file')} left in place: "
            "run cafcat repair --chunk with the chunk that the problem names"
        )
    if report.taken:
        whose = "its" if report.taken == 1 else "their"
        lines.append(f"{plural(report.taken, 'chunk')} left alone: {whose} files are being copied right now")
    lines += not_copied_yet(report.copies_in)
    if report.waiting:
        lines.append(f"{plural(report.waiting, 'chunk')} left for another time: --max-repack-size")
    return lines


def _done(report: "RepackReport", options: RepackOptions) -> str:
    if not report.chunks:
        if report.taken or report.waiting or report.failed:
            return "nothing to repack"
        line = f"nothing to repack: no chunk has more than {options.max_unused * 100:g}% dead space (--max-unused)"
        if options.small is None:
            return line
        small = format_size(options.small)
        return f"{line}, and no store has several chunks of one format below {small} (--small)"
    files = f"{plural(report.files_moved, 'live file')} ({format_size(report.bytes_moved)})"
    dead = f"{format_size(report.bytes_dead)} dead"
    if report.dry_run:
        return f"would copy {files} out of {plural(report.chunks, 'chunk')}, with {dead}"
    written = f"{plural(report.chunks_written, 'new chunk')} ({format_size(report.bytes_written)})"
    if not report.files_moved and not report.chunks_retired:
        return f"repacked none of {plural(report.chunks, 'chunk')}, with {dead}"
    retired = f"{report.chunks_retired} of {plural(report.chunks, 'chunk')} retired"
    if report.chunks_retired:
        retired += f": prune removes {'it' if report.chunks_retired == 1 else 'them'}"
    return f"copied {files} into {written}; {retired}"


def register(app: typer.Typer) -> None:
    """Add `cafcat repack` to the commands of the program."""
    panels = {
        "Choosing chunks": ("max_unused", "small", "max_repack_size", "chunks", "store"),
        "Writing chunks": ("format", "target_size", "join_store"),
    }
    verb(app, "repack", repack, store=ONLY_IN_STORE, commits=True, moves=True, measured=True, panels=panels)

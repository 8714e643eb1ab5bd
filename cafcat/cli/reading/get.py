"""The commands `cafcat get`, `cat` and `extract`: their flags, progress and output."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.clusters import Cluster, SharePassword, executor_of
from cafcat.cli.errors import DAMAGE, INTERRUPTED, SOME_FAILED
from cafcat.cli.output import location_document
from cafcat.errors import CafcatError, Conflict, InvalidInput, NotFound
from cafcat.model import Location, ProblemKind
from cafcat.support.arguments import WHOLE, ByteRange, parse_range, parse_text
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.packed_files import PackedFiles
    from cafcat.reading.plan import ReadPlan

__all__ = ["Paths", "register"]

Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", parser=parse_text, help="Paths of files in the catalog.")
]
Range = Annotated[
    ByteRange | None,
    typer.Option(
        "--range",
        metavar="A-B",
        parser=parse_range,
        help="Range of bytes: 0-99 (the first 100), 100- (all after these) or -100 (the last 100).",
    ),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite existing files.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show the planned requests, and read no file.")]


def get(
    call: Call,
    *,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH...]", parser=parse_text, help="Paths of files in the catalog."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="File or folder to write to; - for stdout."),
    ] = None,
    force: Force = False,
    byte_range: Range = None,
    explain: Explain = False,
    files_from: Annotated[
        str | None,
        typer.Option(
            "--files-from", metavar="LIST", help="Write the files that are listed here into one tar or zip."
        ),
    ] = None,
    null: Annotated[bool, typer.Option("--null", "-0", help="Names in LIST end with NUL, not newline.")] = False,
    on_error: Annotated[
        str | None,
        typer.Option("--on-error", metavar="fail|skip", help="What to do if a file fails (with --files-from)."),
    ] = None,
) -> int:
    """Copy files out of their archives. Default: to the current folder, under their base names.

    Example: cafcat get photos/a.jpg -o /tmp/
    """
    if files_from is not None:
        from cafcat.cli.reading.get_list import get_list, list_arguments

        others = {"PATH": paths, "--range": byte_range, "--explain": explain}
        return get_list(call, list_arguments(files_from, output, on_error, others, null=null, force=force))
    if not paths or null or on_error:
        raise InvalidInput(
            "--null and --on-error need --files-from" if paths else "no file is named",
            hint="name a PATH, or use --files-from LIST -o FILE.tar",
        )
    if output == "-":
        return cat(call, paths, byte_range, explain)
    from cafcat.cli.stopping import interrupted_by_signals

    targets = _targets(paths, output)
    start, end = byte_range or WHOLE
    with interrupted_by_signals(), call.reading() as repository:
        if explain:
            return _show_plan(call, repository.plan(targets, start, end))
        if len(targets) == 1:
            location = repository.get(paths[0], targets[paths[0]], start, end, overwrite=force)
            _show_saved(call, repository, location, targets[paths[0]])
            return 0
        return _get_many(call, repository, targets, byte_range or WHOLE, force=force)


def _get_many(
    call: Call, repository: "PackedFiles", targets: dict[str, Path], byte_range: ByteRange, *, force: bool
) -> int:
    failed = 0
    for path, found in repository.get_many(targets, *byte_range, overwrite=force):
        if isinstance(found, CafcatError):
            failed += 1
            call.report(found)
        else:
            _show_saved(call, repository, found, targets[path])
    if failed:
        from cafcat.cli.reading.lost import warn_if_lost

        warn_if_lost(call, repository)
    return SOME_FAILED if failed else 0


def _targets(paths: list[str], output: str | None) -> dict[str, Path]:
    """Return the output file for each path of the catalog.

    Args:
        paths: Paths in the catalog.
        output: The value of -o: a file, or a folder in which files get their base names; None: the current folder.
            A name with a slash at its end is a folder, and so is an existing folder.

    Raises:
        InvalidInput: Two files would have the same output, or several paths are given and `output` is no
            existing folder.
    """
    folder = Path(output or ".")
    into_folder = output is None or output.endswith("/") or folder.is_dir()
    if len(paths) > 1 and not folder.is_dir():
        raise InvalidInput(f"-o {output} must be an existing folder, because several files are written")
    targets = {path: folder / path.rsplit("/", 1)[-1] if into_folder else folder for path in paths}
    if len(set(targets.values())) < len(targets):
        raise InvalidInput(
            "two of the files have the same base name, and would have the same output",
            hint="get them one by one, with -o",
        )
    return targets


def _show_saved(call: Call, repository: "PackedFiles", location: Location, target: Path) -> None:
    if call.json:
        archive = repository.object_of(location)
        call.output.document(location_document(location, archive) | {"output": str(target.absolute())})
    elif call.verbose:
        call.output.notice(f"{location.path} -> {target}")


def cat(call: Call, paths: Paths, byte_range: Range = None, explain: Explain = False) -> int:
    """Write files of the catalog to stdout, one after the other.

    Example: cafcat cat logs/2024.txt --range -1000
    """
    start, end = byte_range or WHOLE
    with call.reading() as repository:
        if explain:
            return _show_plan(call, repository.plan(paths, start, end, in_order=True))
        if len(paths) == 1:
            _write(call, repository.stream(paths[0], start, end))
            return 0
        return _cat_many(call, repository, paths, byte_range or WHOLE)


def _cat_many(call: Call, repository: "PackedFiles", paths: list[str], byte_range: ByteRange) -> int:
    from cafcat.reading.reader import FILE_ERRORS

    failed = 0
    for _, blocks in repository.stream_many(paths, *byte_range):
        try:
            if isinstance(blocks, CafcatError):
                raise blocks
            _write(call, blocks)
        except (NotFound, InvalidInput, Conflict, *FILE_ERRORS) as error:
            failed += 1
            call.report(error)
    if failed:
        from cafcat.cli.reading.lost import warn_if_lost

        warn_if_lost(call, repository)
    return SOME_FAILED if failed else 0


def _write(call: Call, blocks: Iterator[bytes]) -> None:
    for block in blocks:
        call.output.raw(block)


def _show_plan(call: Call, plan: "ReadPlan") -> int:
    """Print the planned requests, and return the exit code: 0, or 3 if any file cannot be read.

    The errors of files that are missing, or lack the range, are printed first. If the plan is for a single file,
    its error is raised.
    """
    if plan.failed and not plan.files and len(plan.failed) == 1:
        raise plan.failed[0][1]
    for _, error in plan.failed:
        call.report(error)
    counts = {"files": plan.files, "requests": plan.requests}
    sizes = {"bytes_wanted": plan.bytes_wanted, "bytes_read": plan.bytes_read}
    chunks = [asdict(chunk) for chunk in plan.chunks]
    shown = {key: f"{size} ({format_size(size)})" for key, size in sizes.items()}
    call.output.fields(counts | sizes | {"chunks": chunks}, counts | shown | {"chunks": len(chunks)})
    if not call.json:
        for chunk in plan.chunks:
            work = f"{plural(chunk.requests, 'request')} for {plural(chunk.files, 'file')}"
            sizes_shown = f"{format_size(chunk.bytes_wanted)} of {format_size(chunk.bytes_read)} wanted"
            call.output.line(f"{chunk.chunk}  {work}, {sizes_shown}, {call.output.shown(chunk.object)}")
    return SOME_FAILED if plan.failed else 0


def extract(
    call: Call,
    *,
    directory: Annotated[
        str, typer.Option("--directory", "-C", metavar="DIR", help="Directory to write to; created if missing.")
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
    force: Force = False,
    explain: Explain = False,
    cluster: Cluster = None,
    share_password: SharePassword = False,
) -> int:
    """Copy a folder of the catalog to disk, with modification times. Default: everything.

    Example: cafcat extract photos/2024 -C /tmp/photos
    """
    from cafcat.cli.progress import ShownProgress
    from cafcat.cli.stopping import StopOnSignal

    if explain:
        with call.reading() as repository:
            return _show_plan(call, repository.plan_extract(prefix))
    stop = StopOnSignal("the open file", as_json=call.json)
    with (
        executor_of(cluster) as executor,
        stop,
        call.reading() as repository,
        ShownProgress(call) as progress,
    ):
        progress.stop = stop
        report = repository.with_progress(progress).extract(
            prefix, directory, overwrite=force, executor=executor, share_password=share_password
        )
    first = "interrupted; " if report.interrupted else ""
    failed = f", failed {report.files_failed}" if report.files_failed else ""
    work = f"{format_size(report.bytes)}, {progress.seconds:.1f} s"
    line = f"{first}extracted {plural(report.files, 'file')}{failed}, {work}"
    summary = asdict(report) | {"failed": [problem._asdict() for problem in report.failed]}
    call.summarize({"summary": summary}, [line])
    if report.interrupted:
        return INTERRUPTED
    if progress.problems[ProblemKind.CORRUPT]:
        return DAMAGE
    return SOME_FAILED if report.files_failed else 0


def register(app: typer.Typer) -> None:
    """Add `cafcat get`, `cat` and `extract` to the commands of the program."""
    verb(app, "get", get, reads=True)
    verb(app, "cat", cat, reads=True)
    verb(app, "extract", extract, reads=True)

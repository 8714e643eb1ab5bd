"""`cafcat get`, `cat` and `extract`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.cli.arguments import WHOLE, ByteRange, parse_range, parse_text
from cafcat.cli.call import Call, verb
from cafcat.cli.each import each
from cafcat.cli.errors import DAMAGE, INTERRUPTED, SOME_FAILED
from cafcat.cli.output import location_document, plural
from cafcat.cli.progress import ShownProgress
from cafcat.cli.stopping import StopOnSignal
from cafcat.errors import InvalidInput
from cafcat.model import Location, ProblemKind
from cafcat.units import format_size

if TYPE_CHECKING:
    from cafcat.repository import Repository

__all__ = ["register"]

Paths = Annotated[list[str], typer.Argument(metavar="PATH", parser=parse_text, help="Files of the catalog.")]
Range = Annotated[
    ByteRange | None,
    typer.Option(
        "--range", metavar="A-B", parser=parse_range, help="Only these bytes: 0-99 is 100 bytes; 100-; -100."
    ),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite files that are there.")]


def get(
    call: Call,
    *,
    paths: Paths,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="A file, a folder, or - for stdout."),
    ] = None,
    force: Force = False,
    byte_range: Range = None,
) -> int:
    """Copy files out of the catalog. They go to the current folder under their base names, or to -o.

    Example: cafcat get photos/a.jpg -o /tmp/
    """
    if output == "-":
        return cat(call, paths, byte_range)
    targets = _targets(paths, output)
    with call.repository() as repository:

        def one(path: str) -> None:
            start, end = byte_range or WHOLE
            location = repository.get(path, targets[path], start, end, overwrite=force)
            _show_saved(call, location, repository.object_of(location), targets[path])

        return each(call, paths, one)


def _targets(paths: list[str], output: str | None) -> dict[str, Path]:
    """Where each file goes. Raises InvalidInput if two would go to one place."""
    folder = Path(output or ".")
    into_folder = output is None or output.endswith("/") or folder.is_dir()
    if len(paths) > 1 and not folder.is_dir():
        raise InvalidInput(f"-o {output} must be a folder that is there, as there are several files")
    targets = {path: folder / path.rsplit("/", 1)[-1] if into_folder else folder for path in paths}
    if len(set(targets.values())) < len(targets):
        raise InvalidInput("two of the files have the same base name", hint="get them one by one, with -o")
    return targets


def _show_saved(call: Call, location: Location, archive: str, target: Path) -> None:
    if call.json:
        call.output.document(location_document(location, archive) | {"output": str(target.absolute())})
    elif call.verbose:
        call.output.notice(f"{location.path} -> {target}")


def cat(call: Call, paths: Paths, byte_range: Range = None) -> int:
    """Write files of the catalog to stdout, one after the other.

    Example: cafcat cat logs/2024.txt --range -1000
    """
    with call.repository() as repository:
        return each(call, paths, lambda path: _cat(call, repository, path, byte_range))


def _cat(call: Call, repository: "Repository", path: str, byte_range: ByteRange | None) -> None:
    start, end = byte_range or WHOLE
    for block in repository.stream(path, start, end):
        call.output.raw(block)


def extract(
    call: Call,
    *,
    directory: Annotated[
        str, typer.Option("--directory", "-C", metavar="DIR", help="Where to; made if it is not there.")
    ],
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="PREFIX", parser=parse_text, help="Folder of the catalog; none or . is all.", show_default=False
        ),
    ] = "",
    force: Force = False,
) -> int:
    """Copy a folder of the catalog, or all of it, to disk. Modification times are restored.

    Example: cafcat extract photos/2024 -C /tmp/photos
    """
    stop = StopOnSignal("the open file", as_json=call.json)
    with stop, call.repository() as repository, ShownProgress(call) as progress:
        report = repository.extract(prefix, directory, overwrite=force, progress=progress, should_stop=stop)
    if not call.quiet or call.json:
        first = "interrupted; " if report.interrupted else ""
        failed = f", failed {report.files_failed}" if report.files_failed else ""
        work = f"{format_size(report.bytes)}, {progress.seconds:.1f} s"
        line = f"{first}extracted {plural(report.files, 'file')}{failed}, {work}"
        summary = asdict(report) | {"failed": [problem._asdict() for problem in report.failed]}
        call.output.show({"summary": summary}, [line])
    if report.interrupted:
        return INTERRUPTED
    if progress.problems[ProblemKind.CORRUPT]:
        return DAMAGE
    return SOME_FAILED if report.files_failed else 0


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    verb(app, "get")(get)
    verb(app, "cat")(cat)
    verb(app, "extract")(extract)

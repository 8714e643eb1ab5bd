"""The command `cafcat du`: its flags and output."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from operator import eq
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cafcat import __version__
from cafcat.cli.call import Call, verb
from cafcat.cli.reading.lost import warn_if_lost
from cafcat.cli.reading.missing_names import explain_parents, explain_removed, hint_for_folder, means_everything
from cafcat.errors import InvalidInput, NotFound
from cafcat.model import NO_SUCH_PREFIX, FolderTotal, Location
from cafcat.support.arguments import parse_text
from cafcat.support.paths import folder_of
from cafcat.support.quantities import format_size

if TYPE_CHECKING:
    from cafcat.packed_files import PackedFiles

__all__ = ["register"]


def du(
    call: Call,
    *,
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER",
            parser=parse_text,
            help="Folder of the catalog. Default: everything.",
            show_default=False,
        ),
    ] = "",
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth",
            "-d",
            metavar="N",
            min=0,
            max=100,
            help="Levels of folders to show; 0: only FOLDER. Default: 1.",
        ),
    ] = None,
    sort: Annotated[bool, typer.Option("--sort", help="Print the largest folders first.")] = False,
    human: Annotated[bool, typer.Option("--human", "-h", help="Print sizes as 1.5 MB.")] = False,
    ncdu: Annotated[
        bool, typer.Option("--ncdu", help="Print all folders and files as JSON that `ncdu -f` shows.")
    ] = False,
) -> None:
    """Print size and number of files of a folder and its subfolders. No file is counted: the catalog keeps totals.

    Example: cafcat du --sort photos
    """
    if ncdu and (depth is not None or sort or human):
        hint = "leave --depth, --sort and --human out, or leave --ncdu out"
        raise InvalidInput("--ncdu prints all folders and files, in a form of its own", hint=hint)
    levels = 1 if depth is None else depth
    with call.files() as repository:
        total = repository.folder_total(folder)
        if total.files == 0:
            total = _total_of_file(call, repository, folder)
        if ncdu:
            _print_for_ncdu(call, repository, folder)
            return
        below = repository.folder_totals(folder, levels, by_size=sort) if levels else iter(())
        for found in chain([total], below) if sort else chain(below, [total]):
            call.output.show(_document(found), [call.output.shown(_line(found, human=human))])


def _total_of_file(call: Call, repository: "PackedFiles", path: str) -> FolderTotal:
    """Return the size of a file in place of a folder without files. Raises NotFound if there is no such file."""
    for entry in repository.list_folder(path):
        if isinstance(entry, Location):
            return FolderTotal(entry.path, 0, 1, entry.size_bytes)
    warn_if_lost(call, repository.session)
    if not means_everything(path):
        hint = hint_for_folder(path, repository.session.catalog.reading.files)
        error = NotFound(NO_SUCH_PREFIX, path=path, hint=hint)
        if not explain_removed(repository.session.catalog, error):
            explain_parents(repository, error)
        raise error
    return FolderTotal("", 0, 0, 0)


def _document(total: FolderTotal) -> dict[str, Any]:
    return {"path": total.path, "files": total.files, "bytes": total.size_bytes}


def _line(total: FolderTotal, *, human: bool) -> str:
    size = format_size(total.size_bytes) if human else str(total.size_bytes)
    return f"{size:>14}  {total.files:>12}  {total.path or '(all files)'}"


def _print_for_ncdu(call: Call, repository: "PackedFiles", folder: str) -> None:
    """Print a folder in the format of `ncdu -o` (https://dev.yorhel.nl/ncdu/jsonfmt, version 1.2)."""
    if call.json:
        raise InvalidInput("--ncdu has a JSON format of its own", hint="leave out --json")
    head = json.dumps({"progname": "cafcat", "progver": __version__})
    call.output.line(f"[1,2,{head},")
    for line in _ncdu_lines(repository.list(folder), folder_of(folder), folder.rstrip("/") or "/"):
        call.output.line(line)
    call.output.line("]")


def _ncdu_lines(files: Iterable[Location], base: str, name: str) -> Iterator[str]:
    """Yield the lines of a folder. Its files come in the order of paths, so those of each folder are adjacent.

    Args:
        files: The files; first that with the name of the folder, if there is one.
        base: Beginning of their paths that is left out: the folder with a slash at its end.
        name: Name of the folder.
    """
    yield f"[{json.dumps({'name': name})}"
    opened: list[str] = []
    for location in files:
        *folders, last = location.path.removeprefix(base).split("/")
        folders = folders if location.path.startswith(base) else []
        common = sum(takewhile(bool, map(eq, opened, folders)))
        yield from ("]" for _ in opened[common:])
        yield from (f",[{json.dumps({'name': one})}" for one in folders[common:])
        yield f",{json.dumps({'name': last, 'asize': location.size_bytes, 'dsize': location.size_bytes})}"
        opened = folders
    yield from ("]" for _ in opened)
    yield "]"


def register(app: typer.Typer) -> None:
    """Add `cafcat du` to the commands of the program."""
    verb(app, "du", du)

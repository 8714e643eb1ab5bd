"""The commands `cafcat rm` and `cafcat undelete`: their flags, progress and output."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.errors import SOME_FAILED
from cafcat.cli.operation import operation
from cafcat.cli.output import location_document, timestamp
from cafcat.cli.progress import ShownProgress
from cafcat.errors import CafcatError, Conflict, InvalidInput, NotFound
from cafcat.model import FileProblem, ProblemKind
from cafcat.operations.rm.options import RmOptions
from cafcat.operations.undelete.options import UndeleteOptions
from cafcat.sources.names import LIST_BLOCK_BYTES, names_in
from cafcat.support.arguments import parse_text
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.model import RetiredLocation
    from cafcat.operations.rm.report import RemoveReport
    from cafcat.operations.undelete.report import UndeleteReport
    from cafcat.repository import Repository

__all__ = ["register"]

Paths = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH...", parser=parse_text, help="Paths of files in the catalog.", show_default=False),
]
FilesFrom = Annotated[
    str | None,
    typer.Option("--files-from", metavar="FILE", help="Read further paths from FILE, one per line; - is stdin."),
]
Null = Annotated[bool, typer.Option("--null", "-0", help="Names in --files-from end with NUL instead of newline.")]

_ERRORS: Final[dict[ProblemKind, type[CafcatError]]] = {ProblemKind.MISSING: NotFound, ProblemKind.EXISTS: Conflict}


class _Progress(ShownProgress):
    """Progress of `cafcat rm` and `undelete`.

    If the user gave a single name, a problem with this name is raised: NotFound if it is missing, Conflict if its
    path has a newer file. Every other problem is counted and printed.
    """

    def __init__(self, call: Call, *, single: bool) -> None:
        super().__init__(call)
        self._single = single

    def problem(self, problem: FileProblem) -> None:
        if self._single and problem.kind in _ERRORS:
            raise _ERRORS[problem.kind](problem.message, path=problem.path)
        super().problem(problem)


def rm(
    call: Call,
    *,
    paths: Paths = None,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Remove folders with everything below them; needs --yes.")
    ] = False,
    files_from: FilesFrom = None,
    null: Null = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; only show the result.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do the work of -r. Without this flag, -r only shows the result.")
    ] = False,
) -> int:
    """Remove files from the catalog. undelete brings them back until prune removes their bytes.

    Example: cafcat rm -r photos/2019 --yes
    """
    names = _names(paths, files_from, null=null, recursive=recursive)
    folders = (paths or []) if recursive else []
    dry_run = dry_run or (recursive and not yes)
    single = files_from is None and len(paths or []) == 1
    with operation(
        call, _Progress(call, single=single), at_hand="the removal", if_interrupted="nothing was removed"
    ) as session:
        from cafcat.operations.rm.run import run

        report = run(session, RmOptions(names, folders=folders, dry_run=dry_run))
    call.summarize({"summary": asdict(report)}, _removed(report, can_do=recursive and not yes))
    return SOME_FAILED if report.files_failed else 0


def _removed(report: "RemoveReport", *, can_do: bool) -> list[str]:
    done = "would remove" if report.dry_run else "removed"
    line = f"{done} {plural(report.files, 'file')} ({format_size(report.bytes)})"
    if report.chunks_retired:
        have = "would have" if report.dry_run else "has" if report.chunks_retired == 1 else "have"
        line += f"; {plural(report.chunks_retired, 'chunk')} {have} no file left"
    return [line, "run it again with --yes"] if can_do and report.files else [line]


def undelete(
    call: Call,
    *,
    paths: Paths = None,
    recursive: Annotated[
        bool,
        typer.Option("--recursive", "-r", help="Bring back folders with everything that was removed below them."),
    ] = False,
    files_from: FilesFrom = None,
    null: Null = False,
    listed: Annotated[
        bool, typer.Option("--list", "-l", help="List the files below PATH that can be brought back.")
    ] = False,
) -> int:
    """Bring back removed files in their last version. This is possible until their chunk is pruned.

    Example: cafcat undelete --list photos
    """
    if listed:
        return _list(call, paths or [], refused=recursive or null or files_from is not None)
    names = _names(paths, files_from, null=null, recursive=recursive)
    folders = (paths or []) if recursive else []
    single = files_from is None and len(paths or []) == 1
    with operation(
        call, _Progress(call, single=single), at_hand="the undelete", if_interrupted="nothing was brought back"
    ) as session:
        from cafcat.operations.undelete.run import run

        report = run(session, UndeleteOptions(names, folders=folders))
    call.summarize({"summary": asdict(report)}, [_restored(report)])
    left = 0 if recursive else report.files_live + report.files_pruned
    return SOME_FAILED if report.files_failed + report.files_taken + left else 0


def _restored(report: "UndeleteReport") -> str:
    parts = [f"brought back {plural(report.files, 'file')} ({format_size(report.bytes)})"]
    if report.files_live:
        parts.append(f"left alone {report.files_live} that have a file again")
    if report.files_pruned:
        parts.append(f"{report.files_pruned} are gone for good: pruned")
    if report.files_taken:
        parts.append(f"left alone {report.files_taken} whose log files are in another archive now")
    return "; ".join(parts)


def _list(call: Call, prefixes: Sequence[str], *, refused: bool) -> int:
    if refused or len(prefixes) > 1:
        raise InvalidInput("undelete --list takes one folder or file, and no other option")
    prefix = prefixes[0] if prefixes else "."
    found = False
    with call.repository() as repository:
        for removed in repository.removed(prefix):
            found = True
            _show(call, repository, removed)
    if not found and prefix not in (".", "./"):
        raise NotFound("the catalog has no removed files with this name, or below it, to bring back", path=prefix)
    return 0


def _show(call: Call, repository: "Repository", removed: "RetiredLocation") -> None:
    location = removed.location
    if call.json:
        document = location_document(location, repository.object_of(location))
        call.output.document(document | {"removed_at": removed.retired_at})
        return
    modified = timestamp(location.modified_ns)
    columns = f"{location.size_bytes:>14}  {modified[:19] + 'Z' if modified else '-':20}"
    call.output.line(f"{columns}  removed {removed.retired_at[:19]}Z  {call.output.shown(location.path)}")


def _names(paths: Sequence[str] | None, files_from: str | None, *, null: bool, recursive: bool) -> Iterable[str]:
    """Return the names of single files, from the arguments and from `--files-from`.

    Args:
        paths: The arguments of the command. With `recursive` they are folders, and are left out.
        files_from: The value of `--files-from`.
        null: True if `-0` was given.
        recursive: True if `-r` was given.

    Raises:
        InvalidInput: No name was given, or the flags contradict each other.
    """
    if not paths and files_from is None:
        raise InvalidInput("name at least one file, or a list of them with --files-from")
    if null and files_from is None:
        raise InvalidInput("-0 is for the names in the list of --files-from: give --files-from, too")
    if recursive and files_from is not None:
        raise InvalidInput("--files-from names single files, not folders: it cannot be combined with -r")
    listed = _names_from(files_from, null_separated=null) if files_from is not None else ()
    return chain(() if recursive else paths or (), listed)


def _names_from(file: str, *, null_separated: bool) -> Iterator[str]:
    """Yield the names in a file, one per line.

    Args:
        file: The file; "-" is standard input.
        null_separated: True if each name ends with NUL instead of a newline.

    Raises:
        NotFound: There is no such file.
        InvalidInput: A name has more than 65,536 bytes.
        OSError: The file cannot be read.
    """
    with _opened(file) as stream:
        yield from names_in(iter(partial(stream.read, LIST_BLOCK_BYTES), b""), file, null_separated=null_separated)


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"the list of names does not exist: there is no file {file}") from error


def register(app: typer.Typer) -> None:
    """Add `cafcat rm` and `undelete` to the commands of the program."""
    verb(app, "rm", rm, commits=True)
    verb(app, "undelete", undelete, commits=True)

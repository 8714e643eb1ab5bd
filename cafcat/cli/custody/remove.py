"""The commands `cafcat rm` and `cafcat undelete`: their flags, progress and output."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.choosing import Chosen, FilesFrom, Null, Paths, choose
from cafcat.cli.confirming import confirm
from cafcat.cli.errors import DAMAGE, SOME_FAILED
from cafcat.cli.operation import operation
from cafcat.cli.output import location_document, timestamp
from cafcat.cli.progress import ShownProgress
from cafcat.cli.reading.missing_names import explain_log, explain_pattern, explain_removed, hint_to_find
from cafcat.errors import CafcatError, Conflict, InvalidInput, NotFound
from cafcat.model import FileProblem, ProblemKind
from cafcat.operations.rm.options import RmOptions
from cafcat.operations.undelete.options import UndeleteOptions
from cafcat.reading.globs import is_glob
from cafcat.support.quantities import format_size, plural
from cafcat.support.replayed import ReplayedNames

if TYPE_CHECKING:
    from cafcat.catalog.files.lookup import Lookup
    from cafcat.model import RetiredLocation
    from cafcat.operations.rm.report import RemoveReport
    from cafcat.operations.undelete.report import UndeleteReport
    from cafcat.repository import Repository

__all__ = ["register"]

_ERRORS: Final[dict[ProblemKind, type[CafcatError]]] = {ProblemKind.MISSING: NotFound, ProblemKind.EXISTS: Conflict}


class _Progress(ShownProgress):
    """Progress of `cafcat rm` and `undelete`.

    If the user gave a single name, a problem with this name is raised: NotFound if it is missing, Conflict if its
    path has a newer file. Every other failure is printed. Files that are left alone below a folder are printed with
    -v only.
    """

    def __init__(self, call: Call, *, single: bool, removes: bool, is_second: bool = False) -> None:
        """Begin without problems.

        Args:
            call: The call of the command.
            single: True if the user gave a single name.
            removes: True for `rm`, False for `undelete`.
            is_second: True if the files were counted before, which printed the problems.
        """
        super().__init__(call)
        self._single = single
        self._removes = removes
        self._is_second = is_second

    def problem(self, problem: FileProblem) -> None:
        if self._single and problem.kind in _ERRORS:
            error = _ERRORS[problem.kind](problem.message, path=problem.path)
            if not self._removes and isinstance(error, NotFound):
                error.hint = error.hint or "`cafcat undelete --list` lists the removed files"
            raise error
        if not self._is_second and (problem.kind.is_failure or self._call.verbose):
            super().problem(problem)


def rm(
    call: Call,
    *,
    paths: Paths = None,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Remove folders with everything below them.")
    ] = False,
    files_from: FilesFrom = None,
    null: Null = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; only show the result.")] = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Do not ask before folders (-r), and files that match patterns, are removed."),
    ] = False,
) -> int:
    """Remove files from the catalog. undelete brings them back until prune removes their bytes.

    Folders and patterns are counted first, and the command asks.

    Example: cafcat rm -r photos/2019 --yes
    """
    targets = _Targets(_chosen(paths, files_from, null=null, recursive=recursive), recursive=recursive)
    asks, report = _rm(call, targets, dry_run=dry_run, yes=yes)
    if asks and report.files:
        confirm(call, f"Remove {plural(report.files, 'file')}?")
        _, report = _rm(call, targets, dry_run=False, yes=True, is_second=True)
    return SOME_FAILED if report.files_failed else 0


class _Targets:
    """The files and folders that one `cafcat rm` removes.

    Patterns are expanded, and a list is read, only once: the files that were counted before the question are
    removed.

    Attributes:
        is_single: True if the user gave a single path or pattern.
        asks: True if the user is asked before the removal.
        may_ask: True if `asks` can be true: `find` shows which names with a wildcard are patterns.
        names: Paths of files, also those that match patterns.
        folders: Folders that are removed with everything below them.
    """

    def __init__(self, chosen: Chosen, *, recursive: bool) -> None:
        self._chosen: Chosen | None = chosen
        self._recursive = recursive
        self.is_single = chosen.is_single
        self.asks = recursive
        self.may_ask = recursive or any(map(is_glob, chosen.paths))
        self.names: Iterable[str] = ()
        self.folders: Sequence[str] = ()

    def find(self, files: "Lookup") -> None:
        """Find out which of the chosen names are patterns, unless that is known already."""
        from cafcat.reading.selecting import expanded, is_pattern

        if self._chosen is None:
            return
        paths, listed, _ = self._chosen
        if not self._recursive:
            paths = _in_catalog(files, paths)
        patterns = [path for path in paths if is_pattern(files, path, below=self._recursive)]
        named = expanded(files, patterns if self._recursive else paths, below=self._recursive)
        self.names = ReplayedNames(chain(named, listed))
        self.folders = [path for path in paths if self._recursive and path not in patterns]
        self.asks = self._recursive or bool(patterns)
        self._chosen = None


def _in_catalog(files: "Lookup", typed: Sequence[str]) -> list[str]:
    """Return paths without a leading "./" or "/" that the user typed, if a file has the path only so."""
    from cafcat.reading.lookup import locate_many

    found = locate_many(files, [path for path in typed if path.startswith(("./", "/"))])
    return [path if isinstance(at := found.get(path), CafcatError | None) else at.path for path in typed]


def _rm(
    call: Call, targets: _Targets, *, dry_run: bool, yes: bool, is_second: bool = False
) -> tuple[bool, "RemoveReport"]:
    """Run the operation, and print its summary.

    Args:
        call: The call of the command.
        targets: What to remove.
        dry_run: Only count.
        yes: Do not count before the removal.
        is_second: True if the files were counted before.

    Returns:
        True if the files were only counted, because the user has to be asked first; and the report.
    """
    progress = _Progress(call, single=targets.is_single, removes=True, is_second=is_second)
    at_hand = "the count" if dry_run or (targets.may_ask and not yes) else "the removal"
    with operation(call, progress, at_hand=at_hand, if_interrupted="nothing was removed") as session:
        from cafcat.operations.rm.run import run

        targets.find(session.catalog.files)
        asks = targets.asks and not yes and not dry_run
        try:
            report = run(session, RmOptions(targets.names, folders=targets.folders, dry_run=dry_run or asks))
        except NotFound as error:
            from cafcat.logs.searching import folder_of_logs

            explain_pattern(error, session.catalog.files)
            if not explain_log(lambda name: session.catalog.logs.has_any(folder_of_logs(name)), error):
                explain_removed(session.catalog, error)
            hint_to_find(error)
            raise
        if asks and session.should_end():
            raise KeyboardInterrupt  # the user does not want the question any more
    call.summarize({"summary": asdict(report)}, [_removed(report)])
    return asks, report


def _removed(report: "RemoveReport") -> str:
    done = "would remove" if report.dry_run else "removed"
    line = f"{done} {plural(report.files, 'file')} ({format_size(report.bytes)})"
    if report.chunks_retired:
        have = "would have" if report.dry_run else "has" if report.chunks_retired == 1 else "have"
        line += f"; {plural(report.chunks_retired, 'chunk')} {have} no file left"
    return line


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
    chosen = _chosen(paths, files_from, null=null, recursive=recursive)
    folders = chosen.paths if recursive else ()
    progress = _Progress(call, single=chosen.is_single, removes=False)
    with operation(call, progress, at_hand="the undelete", if_interrupted="nothing was brought back") as session:
        from cafcat.operations.undelete.run import removed_matching, run

        typed = () if recursive else removed_matching(session, chosen.paths)
        report = run(session, UndeleteOptions(chain(typed, chosen.listed), folders=folders))
    call.summarize({"summary": asdict(report)}, [_restored(report)])
    if report.files_damaged:
        return DAMAGE
    pruned = report.files_pruned + report.files_let_go
    left = 0 if recursive and report.files else report.files_live + pruned
    return SOME_FAILED if report.files_failed + report.files_taken + left else 0


def _restored(report: "UndeleteReport") -> str:
    parts = [f"brought back {plural(report.files, 'file')} ({format_size(report.bytes)})"]
    if report.files_damaged:
        parts.append(f"{report.files_damaged} of them damaged")
    if report.files_live:
        parts.append(f"left alone {report.files_live} that have a file again")
    if report.files_pruned:
        parts.append(f"gone for good with their chunks: {report.files_pruned}")
    if report.files_let_go:
        parts.append(f"left alone {report.files_let_go} whose adopted archive has to be adopted again")
    if report.files_taken:
        parts.append(f"left alone {report.files_taken} whose log files are in another archive now")
    return "; ".join(parts)


def _list(call: Call, prefixes: Sequence[str], *, refused: bool) -> int:
    if refused or len(prefixes) > 1:
        raise InvalidInput("undelete --list takes one folder or file, and no other option")
    prefix = prefixes[0] if prefixes else "."
    found = False
    with call.repository(makes_catalog=False) as repository:
        for removed in repository.removed(prefix):
            found = True
            _show(call, repository, removed)
    if not found and prefix not in (".", "./"):
        raise NotFound("the catalog has no removed files with this name, or below it, to bring back", path=prefix)
    if not found:
        call.note("there are no removed files to bring back")
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


_RETENTION: Final = tuple(
    f"--keep-{which}" for which in ("last", "hourly", "daily", "weekly", "monthly", "yearly", "within", "tag")
)
"""Options of restic's forget."""


def _chosen(paths: Sequence[str] | None, files_from: str | None, *, null: bool, recursive: bool) -> Chosen:
    """Return the files that the user chose. Raises InvalidInput if the flags contradict each other."""
    if recursive and files_from is not None:
        raise InvalidInput("--files-from names single files, not folders: it cannot be combined with -r")
    return choose(paths, files_from, null=null)


def register(app: typer.Typer) -> None:
    """Add `cafcat rm` and `undelete` to the commands of the program."""
    no_question = "--yes removes folders without a question; a single file is removed without one"
    no_rules = "rm removes the named files at once; replaced versions stay until `cafcat prune` removes their chunk"
    hints = dict.fromkeys(("-f", "--force"), no_question) | dict.fromkeys(_RETENTION, no_rules)
    verb(app, "rm", rm, commits=True, hints=hints)
    verb(app, "undelete", undelete, commits=True)

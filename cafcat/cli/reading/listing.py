"""The commands `cafcat ls`, `find`, `stat` and `locate`: their flags and output."""

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.choosing import OLDER_VERSIONS, AsOf, FilesFrom, Null, Paths, choose
from cafcat.cli.output import folder_document, location_document, timestamp
from cafcat.cli.reading.each import each
from cafcat.cli.reading.lost import warn_if_lost
from cafcat.cli.reading.missing_names import (
    explain_log,
    explain_parents,
    explain_removed,
    has_removed,
    hint_for_folder,
    means_everything,
)
from cafcat.cli.reading.url import Expires, Presign, seconds_signed
from cafcat.errors import InvalidInput, NotFound
from cafcat.model import NO_SUCH_PREFIX, Folder, FolderTotal, Location
from cafcat.support.arguments import parse_date, parse_text
from cafcat.support.quantities import format_size, parse_size
from cafcat.support.shell import cat_line, curl_line, dd_line

if TYPE_CHECKING:
    from cafcat.files_as_of import FilesAsOf
    from cafcat.packed_files import PackedFiles

__all__ = ["register"]

Prefix = Annotated[
    str,
    typer.Argument(
        metavar="PREFIX",
        parser=parse_text,
        help="Folder or file of the catalog. Default: everything.",
        show_default=False,
    ),
]


def ls(
    call: Call,
    *,
    prefix: Prefix = "",
    long: Annotated[bool, typer.Option("--long", "-l", help="Print sizes and times, too.")] = False,
    recursive: Annotated[bool, typer.Option("--recursive", "-R", help="List everything below the folder.")] = False,
    human: Annotated[bool, typer.Option("--human", "-h", help="Print sizes as 1.5 MB (with -l).")] = False,
    as_of: AsOf = None,
) -> None:
    """List one level of a folder; with -R, everything below it.

    Example: cafcat ls -l photos/2024
    """
    with call.files() as repository:
        found = False
        files = repository if as_of is None else repository.as_of(as_of)
        items = files.list(prefix) if recursive else files.list_folder(prefix)
        has_totals = long and not recursive and as_of is None  # the catalog keeps the totals of now
        totals = repository.folder_totals(prefix) if has_totals else iter(())
        for item, total in _with_totals(items, totals):
            found = True
            if call.json:
                _show_json(call, repository, item, total)
            else:
                text = call.output.shown(item.path)
                call.output.line(f"{_columns(item, total, human=human)}  {text}" if long else text)
        if as_of is not None:
            _explain_as_of(call, repository.as_of(as_of), prefix, found=found)
        elif not found:
            _explain_nothing(call, repository, prefix)


def _explain_as_of(call: Call, files: "FilesAsOf", prefix: str, name: str | None = None, *, found: bool) -> None:
    """Print a warning if files of an earlier time are left out, or if the catalog had none.

    Args:
        call: The call of the command.
        files: The files of that time.
        prefix: The folder or file that was listed.
        name: Shell pattern of the names that were listed; None for all.
        found: True if the catalog had the folder or file at that time.

    Raises:
        NotFound: The catalog had no such folder or file at that time.
    """
    if not found and not means_everything(prefix):
        raise files.no_such_prefix(prefix)
    if (pruned := next(files.pruned(prefix, name), None)) is not None:
        call.warn(
            f"files of that time are left out, because `prune` deleted them: {call.output.shown(pruned)}, for one"
        )
    elif not found and next(files.pruned(), None) is None:
        call.warn("the catalog has no files from that time: `cafcat runs` lists the times of the ingests")


def _explain_nothing(call: Call, repository: "PackedFiles", prefix: str) -> None:
    """Print a note or warning if the whole catalog is empty. Raises NotFound for any other prefix without files."""
    is_lost = warn_if_lost(call, repository.session)
    if not means_everything(prefix):
        hint = hint_for_folder(prefix, repository.session.catalog.reading.files)
        error = NotFound(NO_SUCH_PREFIX, path=prefix, hint=hint)
        if not explain_log(repository.has_logs, error) and not explain_removed(repository.session.catalog, error):
            explain_parents(repository, error)
        raise error
    if not is_lost and not repository.has_logs(""):
        if has_removed(repository.session.catalog):
            call.note("the catalog has no files any more: `cafcat undelete --list` lists the removed files")
        else:
            call.note("the catalog has no files: `cafcat ingest FOLDER` packs a folder")


def _with_totals(
    items: Iterator[Location | Folder], totals: Iterator[FolderTotal]
) -> Iterator[tuple[Location | Folder, FolderTotal | None]]:
    """Yield each item of a listing with the total of its folder; None for a file. Both are in path order."""
    total = next(totals, None)
    for item in items:
        while isinstance(item, Folder) and total is not None and total.path < item.path:
            total = next(totals, None)
        yield item, total if total is not None and total.path == item.path else None


def _show_json(
    call: Call, repository: "PackedFiles", item: Location | Folder, total: FolderTotal | None = None
) -> None:
    if isinstance(item, Folder):
        sizes = {} if total is None else {"files": total.files, "bytes": total.size_bytes}
        call.output.document(folder_document(item) | sizes)
    else:
        call.output.document(location_document(item, repository.object_of(item)))


def _columns(item: Location | Folder, total: FolderTotal | None, *, human: bool) -> str:
    if isinstance(item, Folder):
        size = "-" if total is None else format_size(total.size_bytes) if human else str(total.size_bytes)
        return f"{size:>14}  {'-':20}"
    size = format_size(item.size_bytes) if human else str(item.size_bytes)
    modified = timestamp(item.modified_ns)
    return f"{size:>14}  {modified[:19] + 'Z' if modified else '-':20}"


def find(
    call: Call,
    *,
    prefix: Prefix = "",
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="GLOB", parser=parse_text, help="Shell pattern for the base name, such as '*.jpg'."
        ),
    ] = None,
    newer: Annotated[
        int | None,
        typer.Option(
            "--newer",
            metavar="DATE",
            parser=parse_date,
            help="Only files modified after this time, such as 2026-11-21 (its midnight, UTC) or 7d (days ago).",
        ),
    ] = None,
    older: Annotated[
        int | None,
        typer.Option("--older", metavar="DATE", parser=parse_date, help="Only files modified before this time."),
    ] = None,
    min_size: Annotated[
        int | None,
        typer.Option(
            "--min-size", metavar="SIZE", parser=parse_size, help="Only files of at least this size, such as 1MB."
        ),
    ] = None,
    max_size: Annotated[
        int | None,
        typer.Option("--max-size", metavar="SIZE", parser=parse_size, help="Only files of at most this size."),
    ] = None,
    null: Annotated[
        bool, typer.Option("--null", "-0", help="End each path with NUL instead of newline, for xargs -0.")
    ] = False,
    as_of: AsOf = None,
) -> None:
    """Print the paths below PREFIX that meet every condition.

    Example: cafcat find photos --name '*.jpg' --min-size 1MB
    """
    if min_size is not None and max_size is not None and min_size > max_size:
        raise InvalidInput(
            "no file meets both --min-size and --max-size", hint="the smallest size is the larger one"
        )
    if newer is not None and older is not None and newer >= older:
        raise InvalidInput(
            "no file meets both --newer and --older", hint="files between two dates: --newer FIRST --older LAST"
        )
    conditions: dict[str, Any] = {
        "name": name,
        "newer_ns": newer,
        "older_ns": older,
        "min_size": min_size,
        "max_size": max_size,
    }
    with call.files() as repository:
        any_found = False
        files = repository if as_of is None else repository.as_of(as_of)
        if call.json:
            for location in files.find(prefix, **conditions):
                any_found = True
                _show_json(call, repository, location)
        else:
            with closing(files.find_paths(prefix, **conditions)) as pages:
                for paths in pages:
                    any_found = True
                    call.output.names(paths, null=null)
        is_known = any_found or any(True for _ in files.list_folder(prefix))
        if as_of is not None:
            _explain_as_of(call, repository.as_of(as_of), prefix, name, found=is_known)
        elif not is_known:
            _explain_nothing(call, repository, prefix)


def stat(call: Call, paths: Paths = None, files_from: FilesFrom = None, null: Null = False) -> int:
    """Show size, time, checksum and location of files. Also shows the earlier locations of their paths.

    Example: cafcat stat 'photos/2024-*/*.jpg'
    """
    chosen = choose(paths, files_from, null=null)
    return each(call, chosen, lambda repository, path: _stat(call, repository, path))


def _stat(call: Call, repository: "PackedFiles", path: str) -> None:
    location = repository.locate(path)
    document = location_document(location, repository.object_of(location))
    history = [
        location_document(before.location, repository.object_of(before.location))
        | {"retired_at": before.retired_at, "run": before.run, "reason": before.reason, "is_kept": before.is_kept}
        for before in repository.history(path)
    ]
    size = f"{location.size_bytes} ({format_size(location.size_bytes)})"
    shown = document | {"size_bytes": size, "crc32c": f"{location.crc32c:08x}"}
    call.output.fields(document | {"history": history}, shown)
    if not call.json:
        before_label = f"{'before':<{max(map(len, shown))}}"
        for before in history:
            call.output.line(
                f"{before_label}  {before['size_bytes']} bytes, modified {before['modified_at']},"
                f" chunk {before['chunk']} [{before['start_byte']}, {before['end_byte']}),"
                f" until {before['retired_at']} ({_why(before)})"
            )


def _why(before: dict[str, Any]) -> str:
    """Return why a path stopped pointing to an earlier version of its file, such as "replaced, run 7".

    Only a version that an ingest replaced or skipped has a run: the run of that ingest.

    Args:
        before: The earlier version, as `cafcat stat --json` prints it.
    """
    reason = before["reason"] if before["run"] is None else f"{before['reason']}, run {before['run']}"
    return reason if before["is_kept"] else f"{reason}; its chunk was pruned or lost"


def locate(
    call: Call,
    *,
    paths: Paths = None,
    files_from: FilesFrom = None,
    null: Null = False,
    presign: Presign = False,
    expires: Expires = None,
) -> int:
    """Show where the bytes of a file are. The last line is a shell command that prints the file.

    The command is one line, whatever the name. It needs cafcat only if the file has to be decoded, or if no other
    program can read its store.

    Example: cafcat locate photos/a.jpg | tail -n 1 | sh > a.jpg
    """
    seconds = seconds_signed(presign, expires)
    chosen = choose(paths, files_from, null=null)
    return each(call, chosen, lambda repository, path: _locate(call, repository, path, seconds))


def _locate(call: Call, repository: "PackedFiles", path: str, seconds: int | None) -> None:
    location = repository.locate(path)
    document = location_document(location, repository.object_of(location))
    command = _command(repository, location, seconds)
    keys = ("path", "chunk", "object", "start_byte", "end_byte")
    shown = {key: document[key] for key in (*keys, "decoding") if key in document}
    call.output.fields(document | {"command": command}, shown)
    if not call.json:
        call.output.line(command)


def _command(repository: "PackedFiles", location: Location, seconds: int | None) -> str:
    """Return a command of one line for a POSIX shell that prints the content of a file.

    Args:
        repository: The repository.
        location: Where the file is.
        seconds: How long the signed URL in the command is valid; None for no signed URL.
    """
    start, end = location.start_byte, location.end_byte
    if seconds is not None:
        return curl_line(repository.signed_url(location, seconds).url, start, end)
    if location.decoding is not None:
        return cat_line(location.path)
    archive = repository.object_of(location)
    if "://" not in archive:
        return dd_line(archive, start, end)
    url = repository.url_of(location)
    if not url.startswith(("http://", "https://")):
        return cat_line(location.path)  # no other program knows this kind of store
    return curl_line(url, start, end, [repository.curl_options(location)])


def register(app: typer.Typer) -> None:
    """Add `cafcat ls`, `find`, `stat` and `locate` to the commands of the program."""
    one_folder = "ls lists one folder; `cafcat stat PATH...` shows several files"
    verb(app, "ls", ls, reads=True, hints={"": one_folder, **OLDER_VERSIONS})
    two_dashes = "options have two dashes: `cafcat find FOLDER --name PATTERN`"
    one_folder = "find lists one folder; a quoted pattern chooses files in it: `cafcat find FOLDER --name '*.jpg'`"
    verb(app, "find", find, reads=True, hints={"-n": two_dashes, "": one_folder, **OLDER_VERSIONS})
    verb(app, "stat", stat, reads=True)
    verb(app, "locate", locate, reads=True)

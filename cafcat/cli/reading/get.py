"""The commands `cafcat get` and `cat`: their flags and output."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.choosing import OLDER_VERSIONS, AsOf, Chosen, FilesFrom, Null, Paths, choose
from cafcat.cli.errors import SOME_FAILED
from cafcat.cli.output import location_document
from cafcat.errors import CafcatError, Conflict, InvalidInput, NotFound
from cafcat.model import Location
from cafcat.support.arguments import WHOLE, ByteRange, parse_range

if TYPE_CHECKING:
    from cafcat.files_as_of import FilesAsOf
    from cafcat.packed_files import PackedFiles

__all__ = ["Explain", "Force", "register"]

Range = Annotated[
    ByteRange | None,
    typer.Option(
        "--range",
        metavar="A-B",
        parser=parse_range,
        help="Range of bytes: 0-99 (the first 100), 100- (all after these) or -100 (the last 100).",
    ),
]
_OUTPUT_FOLDERS: Final = (".", "./", "..", "../")
"""Names that users of cp write at the end, for the folder to write to. No file of the catalog has such a name."""

Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite existing files.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show the planned requests, and read no file.")]


def get(
    call: Call,
    *,
    paths: Paths = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File or folder to write to; - for stdout. With --files-from also FILE.tar or FILE.zip.",
        ),
    ] = None,
    parents: Annotated[
        bool, typer.Option("--parents", help="Keep the folders of the files, instead of their base names only.")
    ] = False,
    force: Force = False,
    byte_range: Range = None,
    as_of: AsOf = None,
    explain: Explain = False,
    files_from: FilesFrom = None,
    null: Null = False,
    on_error: Annotated[
        str | None,
        typer.Option("--on-error", metavar="fail|skip", help="What to do if a file of a tar or zip fails."),
    ] = None,
) -> int:
    """Copy files out of their archives. Default: to the current folder, under their base names.

    Example: cafcat get photos/a.jpg -o /tmp/
    """
    if files_from is not None and (on_error is not None or _is_archive(output)):
        from cafcat.cli.reading.get_list import get_list, list_arguments

        others = {
            "PATH": paths,
            "--range": byte_range,
            "--explain": explain,
            "--parents": parents,
            "--as-of": as_of,
        }
        return get_list(call, list_arguments(files_from, output, on_error, others, null=null, force=force))
    if on_error is not None:
        raise InvalidInput("--on-error needs --files-from", hint="use --files-from LIST -o FILE.tar")
    if output is None and paths and len(paths) > 1 and paths[-1] in _OUTPUT_FOLDERS:
        hint = f"name the folder to write to with -o: `cafcat get PATH... -o {paths[-1]}`"
        raise InvalidInput(f"{paths[-1]!r} is no path of a file in the catalog", hint=hint)
    chosen = choose(paths, files_from, null=null)
    if output == "-":
        return _cat(call, chosen, byte_range or WHOLE, as_of, explain=explain)
    from cafcat.cli.stopping import interrupted_by_signals

    with interrupted_by_signals(), call.reading() as repository:
        files = repository if as_of is None else repository.as_of(as_of)
        only, names = chosen.names(files)
        if explain:
            return _show_plan(call, files, names, byte_range or WHOLE)
        if only is None or parents:
            found = files.get_into(
                names, _folder(output, create=parents), *(byte_range or WHOLE), parents=parents, overwrite=force
            )
            single = only is not None
            return _show_many(
                call, repository, found, output or ".", typed=chosen.paths, parents=parents, single=single
            )
        target = _target(only, output)
        location = files.get(only, target, *(byte_range or WHOLE), overwrite=force)
        _show_saved(call, repository, location, target)
        return 0


def _is_archive(output: str | None) -> bool:
    from cafcat.cli.reading.get_list import archive_format

    return archive_format(output) is not None


def _show_many(
    call: Call,
    repository: "PackedFiles",
    outcomes: "Iterable[tuple[str, Location | CafcatError]]",
    folder: str,
    *,
    typed: Collection[str],
    parents: bool,
    single: bool,
) -> int:
    """Print the files that were written into a folder, and the errors. Return the exit code.

    Args:
        call: The call of the command.
        repository: The repository.
        outcomes: The path of each file, with its location or its error.
        folder: The folder, as the user named it.
        typed: The names on the command line.
        parents: True if the files have their whole paths below the folder.
        single: True to raise the error of a file, because the user named only this one.
    """
    failed = 0
    for _, found in outcomes:
        if not isinstance(found, CafcatError):
            name = found.path if parents else found.path.rsplit("/", 1)[-1]
            _show_saved(call, repository, found, Path(folder, name))
            continue
        from cafcat.cli.reading.missing_names import explain_missing

        explain_missing(repository, found, typed)
        if single:
            raise found
        failed += 1
        call.report(found)
    if failed:
        from cafcat.cli.reading.lost import warn_if_lost

        warn_if_lost(call, repository.session)
    return SOME_FAILED if failed else 0


def _folder(output: str | None, *, create: bool) -> Path:
    """Return the folder to which several files are written.

    Args:
        output: The value of -o; None: the current folder.
        create: True to make the folder if it is missing, as those below it.

    Raises:
        InvalidInput: It does not exist, or is no folder.
    """
    folder = Path(output or ".")
    if create and not folder.exists():
        folder.mkdir(parents=True)
    if not folder.is_dir():
        raise InvalidInput(
            f"-o {output} must be an existing folder, because several files are written",
            hint="for one archive: --files-from LIST -o FILE.tar or -o FILE.zip",
        )
    return folder


def _target(path: str, output: str | None) -> Path:
    """Return the output file for a single path of the catalog.

    Args:
        path: Path in the catalog.
        output: The value of -o: a file, or a folder in which the file gets its base name; None: the current folder.
            A name with a slash at its end is a folder, and so is an existing folder.
    """
    target = Path(output or ".")
    into_folder = output is None or output.endswith("/") or target.is_dir()
    return target / path.rsplit("/", 1)[-1] if into_folder else target


def _show_saved(call: Call, repository: "PackedFiles", location: Location, target: Path) -> None:
    if call.json:
        archive = repository.object_of(location)
        call.output.document(location_document(location, archive) | {"output": str(target.absolute())})
    elif call.verbose:
        call.output.notice(f"{location.path} -> {target}")


def cat(
    call: Call,
    *,
    paths: Paths = None,
    byte_range: Range = None,
    as_of: AsOf = None,
    explain: Explain = False,
    files_from: FilesFrom = None,
    null: Null = False,
) -> int:
    """Write files of the catalog to stdout, one after the other.

    Example: cafcat cat logs/2024.txt --range -1000
    """
    return _cat(call, choose(paths, files_from, null=null), byte_range or WHOLE, as_of, explain=explain)


def _cat(call: Call, chosen: Chosen, byte_range: ByteRange, as_of: str | None, *, explain: bool) -> int:
    with call.reading() as repository:
        files = repository if as_of is None else repository.as_of(as_of)
        only, names = chosen.names(files)
        if explain:
            return _show_plan(call, files, names, byte_range, in_order=True)
        if only is not None:
            _write(call, files.stream(only, *byte_range))
            return 0
        return _cat_many(call, repository, files.stream_many(names, *byte_range), typed=chosen.paths)


def _cat_many(
    call: Call,
    repository: "PackedFiles",
    streams: "Iterable[tuple[str, Iterator[bytes] | CafcatError]]",
    *,
    typed: Collection[str],
) -> int:
    from cafcat.reading.reader import FILE_ERRORS

    failed = 0
    for _, blocks in streams:
        try:
            if isinstance(blocks, CafcatError):
                raise blocks
            _write(call, blocks)
        except (NotFound, InvalidInput, Conflict, *FILE_ERRORS) as error:
            from cafcat.cli.reading.missing_names import explain_missing

            failed += 1
            explain_missing(repository, error, typed)
            call.report(error)
    if failed:
        from cafcat.cli.reading.lost import warn_if_lost

        warn_if_lost(call, repository.session)
    return SOME_FAILED if failed else 0


def _write(call: Call, blocks: Iterator[bytes]) -> None:
    for block in blocks:
        call.output.raw(block)


def _show_plan(
    call: Call,
    files: "PackedFiles | FilesAsOf",
    names: Iterable[str],
    byte_range: ByteRange,
    *,
    in_order: bool = False,
) -> int:
    from cafcat.cli.reading.plans import show_plan

    return show_plan(call, files.plan(names, *byte_range, in_order=in_order))


def register(app: typer.Typer) -> None:
    """Add `cafcat get` and `cat` to the commands of the program."""
    verb(app, "get", get, reads=True, hints=OLDER_VERSIONS)
    verb(app, "cat", cat, reads=True, hints=OLDER_VERSIONS)

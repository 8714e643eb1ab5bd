"""Chooses the files of a command: paths and patterns on the command line, and the names in a list."""

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from cafcat.errors import InvalidInput, NotFound, SourceFailed
from cafcat.support.arguments import parse_text

if TYPE_CHECKING:
    from cafcat.cli.call import Call
    from cafcat.files_as_of import FilesAsOf
    from cafcat.packed_files import PackedFiles

__all__ = ["OLDER_VERSIONS", "AsOf", "Chosen", "FilesFrom", "Null", "Paths", "choose", "warn_of_no_match"]

Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH...",
        parser=parse_text,
        help="Paths of files in the catalog, or patterns such as 'photos/**/*.jpg'.",
        show_default=False,
    ),
]
FilesFrom = Annotated[
    str | None,
    typer.Option("--files-from", metavar="LIST", help="Read further paths from LIST, one per line; - is stdin."),
]
Null = Annotated[bool, typer.Option("--null", "-0", help="Names in LIST end with NUL, not newline.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="TIME",
        help="Read the versions of that time (UTC): 2026-11-21T10:00, or 7d for 7 days ago.",
    ),
]


OLDER_VERSIONS: Final = dict.fromkeys(
    ("--at", "--snapshot", "--version-id"),
    "use --as-of TIME; `cafcat query history PATH` lists the versions of a file with their times",
)
"""Hints for options of other programs that name an older version of a file."""


class Chosen(NamedTuple):
    """The files that the user chose.

    Attributes:
        paths: Paths and patterns on the command line.
        listed: Names in the list of `--files-from`, which are paths and no patterns. They can be iterated once.
        has_list: True if `--files-from` was given.
    """

    paths: Sequence[str]
    listed: Iterable[str]
    has_list: bool

    @property
    def is_single(self) -> bool:
        """True if the user gave one path or pattern, and nothing else. Its error then ends the command."""
        return len(self.paths) == 1 and not self.has_list

    @property
    def only_path(self) -> str | None:
        """The path, if the user gave one path that cannot be a pattern, and nothing else; else None."""
        is_plain = self.is_single and not any(character in self.paths[0] for character in "*?[")
        return self.paths[0] if is_plain else None

    def names(self, repository: "PackedFiles | FilesAsOf") -> tuple[str | None, Iterator[str]]:
        """Return the paths of the chosen files, with the patterns expanded by the catalog, page by page.

        Returns:
            The path, if the user gave a single path or pattern that stands for one path; else None. Its error then
            ends the command, and a pattern without a file is such a path. Then an iterator over all paths.
        """
        if self.only_path is not None:
            return self.only_path, iter(self.paths)
        names = chain(repository.expand(self.paths), self.listed)
        if not self.is_single:
            return None, names
        first = list(islice(names, 2))
        return (first[0] if len(first) == 1 else None), chain(first, names)


def choose(paths: Sequence[str] | None, files_from: str | None, *, null: bool) -> Chosen:
    """Return the files that the user chose. The list is opened now, so that a missing list ends the command first.

    Args:
        paths: The arguments of the command.
        files_from: The value of `--files-from`; "-" is stdin.
        null: True if `-0` was given.

    Raises:
        InvalidInput: No name was given, or `-0` without `--files-from`.
        NotFound: There is no such list.
        SourceFailed: The list cannot be read.
    """
    if null and files_from is None:
        raise InvalidInput("-0 is for the names in the list of --files-from: give --files-from, too")
    if not paths and files_from is None:
        raise InvalidInput("no file is named", hint="name at least one PATH, or a list of them with --files-from")
    listed = () if files_from is None else _names_in(files_from, null=null)
    return Chosen(paths or (), listed, has_list=files_from is not None)


def _names_in(listing: str, *, null: bool) -> Iterator[str]:
    from cafcat.sources.names import names_in

    blocks = _blocks(listing)
    next(blocks)  # opens the list
    return names_in(blocks, f"--files-from {listing}", null_separated=null)


def _blocks(listing: str) -> Iterator[bytes]:
    """Yield an empty block once the list is open, then its bytes. The end of the iterator closes the list."""
    from cafcat.sources.names import list_blocks

    try:
        with sys.stdin.buffer if listing == "-" else open(listing, "rb") as file:
            yield b""
            yield from list_blocks(file)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound("no such list of files", path=listing) from error
    except OSError as error:
        raise SourceFailed(f"cannot read the list of files: {error.strerror}", path=listing) from error


def warn_of_no_match(call: "Call", include: Sequence[str], exclude: Sequence[str], matched: str) -> None:
    """Warn that no file matches the patterns of --include, or that --exclude leaves all such files out.

    Args:
        call: The call of the command.
        include: The patterns of --include.
        exclude: The patterns of --exclude.
        matched: Name of the texts that the patterns are compared with, for the message.
    """
    patterns = " ".join(f"--include {shlex.quote(pattern)}" for pattern in include)
    excluded = " ".join(f"--exclude {shlex.quote(pattern)}" for pattern in exclude)
    none = f"no file is left by {patterns} and {excluded}" if exclude else f"no file matches {patterns}"
    braces = "; {a,b} has no meaning: repeat --include" if any("{" in pattern for pattern in include) else ""
    call.warn(f"{none}; patterns are written as in .gitignore, for {matched}{braces}")

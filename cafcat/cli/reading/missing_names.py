"""Explains why a name is missing: it is a pattern, a path on a disk, or a log file in an archive of logs."""

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cafcat.catalog.files.scope import folder_range
from cafcat.errors import CafcatError, NotFound
from cafcat.support.paths import folder_of
from cafcat.support.shell import argument, word

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cafcat.catalog.catalog import Catalog
    from cafcat.cli.call import Call
    from cafcat.packed_files import PackedFiles
    from cafcat.reading.lookup import PathListing

__all__ = [
    "NO_LOGS",
    "explain_log",
    "explain_missing",
    "explain_parents",
    "explain_pattern",
    "explain_removed",
    "has_removed",
    "hint_for_folder",
    "hint_to_find",
    "means_everything",
    "pattern_hint",
    "warn_of_empty_folders",
]

_LOOKED_AT_REMOVED: Final = 100
"""Number of removed paths of a folder that are looked at, to find one that `undelete` can bring back."""
_PATTERN_CHARACTERS: Final = re.compile(r"[*?\[\\]")
_WILDCARD: Final = re.compile(r"[*?]|\[[^\]]*-|\[[!^]")
"""Found in a pattern that can hardly be a name: a wildcard, a range of characters, or a list of other ones."""
NO_LOGS: Final = (
    "no archive of logs has a log file of this name, or below a folder of this name; `cafcat units` lists all"
)
"""Message of a command that finds no log files below a prefix."""


def explain_missing(repository: "PackedFiles", error: CafcatError, typed: "Collection[str] | None" = None) -> None:
    """Change message or hint of an error if its path is a pattern, a log file, a path on a disk, or was removed.

    Args:
        repository: The repository that raised the error.
        error: The error of a command that accepts patterns.
        typed: The names on the command line. Other names are from a list, and no patterns. None: all are typed.
    """
    from cafcat.support.paths import from_root

    if isinstance(error, NotFound) and error.hint:
        return  # the error is explained already, such as that of a version of another time
    if explain_log(repository.has_logs, error) or explain_removed(repository.session.catalog, error):
        return
    if typed is None or error.path in typed or error.path in [from_root(name) for name in typed]:
        explain_pattern(error, repository.session.catalog.reading.files)
        explain_parents(repository, error)


def explain_log(has_logs: "Callable[[str], bool]", error: CafcatError) -> bool:
    """Change message and hint of an error if the missing file is a log file in an archive, or a folder of them.

    This costs one query for a NotFound with a path, and nothing for other errors. If the query fails, the error
    stays as it is.

    Args:
        has_logs: Tells whether an archive has log files of a name, as CatalogQueries.has_logs.
        error: The error.

    Returns:
        True if the error was changed.
    """
    if not isinstance(error, NotFound) or not error.path:
        return False
    with suppress(CafcatError):
        if has_logs(error.path):
            name = argument(error.path)
            error.message = (
                "an archive of logs has the records of this log file, or of the log files in this folder"
            )
            error.hint = f"use `cafcat units {name}`, or `cafcat search QUERY {name}`"
            return True
    return False


def explain_removed(catalog: "Catalog", error: CafcatError) -> bool:
    """Add a hint to an error if the missing file was removed, or files below the missing folder.

    This costs three queries for a NotFound with a path.

    Args:
        catalog: The catalog that does not have the path.
        error: The error.

    Returns:
        True if the error has the hint now.
    """
    if not isinstance(error, NotFound) or not error.path:
        return False
    with suppress(CafcatError):
        last = next(iter(catalog.reports.history(error.path)), None)
        if last is not None and last.reason == "removed":
            back = f"`cafcat undelete {argument(error.path)}` brings it back"
            error.hint = f"it was removed; {back if last.is_kept else 'its chunk was pruned or lost'}"
            return True
        folder = folder_of(error.path)
        is_unknown = bool(folder) and not catalog.files.folders_among([folder.removesuffix("/")])
        if is_unknown and has_removed(catalog, folder):
            back = f"`cafcat undelete -r {argument(folder.removesuffix('/'))}` brings them back"
            error.hint = f"files below it were removed; {back}"
            return True
    return False


def has_removed(catalog: "Catalog", folder: str = "") -> bool:
    """Return True if `undelete` can bring a file below a folder back. Looks at the first removed paths only.

    Args:
        catalog: The catalog.
        folder: The folder, with "/" at its end; "" for all files.
    """
    return bool(catalog.removal.removed(*folder_range(folder), limit=_LOOKED_AT_REMOVED).files)


def explain_parents(repository: "PackedFiles", error: CafcatError) -> None:
    """Add a hint to an error if the missing path is that of a packed file on a disk.

    The end of such a path is a name in the catalog. This costs two queries. If they fail, the error stays as it is.

    Args:
        repository: The repository that does not have the path.
        error: The error of the command.
    """
    from cafcat.model import NO_SUCH_FILE, NO_SUCH_PREFIX
    from cafcat.support.paths import from_root

    if not error.path or error.message not in (NO_SUCH_FILE, NO_SUCH_PREFIX):
        return
    parts = from_root(error.path).rstrip("/").split("/")
    ends = ["/".join(parts[first:]) for first in range(1, len(parts))]
    files = repository.session.catalog.reading.files
    with suppress(CafcatError):
        known = files.locate_many(ends).keys() | files.folders_among(ends)
        if (found := next((end for end in ends if end in known), None)) is not None:
            error.hint = (
                f"the catalog has {found!r}: names begin with the packed folder, not with the folders above it"
            )


def hint_to_find(error: NotFound) -> None:
    """Add a hint how to look for a missing path to an error without a hint."""
    from cafcat.model import NO_SUCH_FILE, NO_SUCH_PREFIX

    if error.hint is None and error.path and error.message in (NO_SUCH_FILE, NO_SUCH_PREFIX):
        name = _PATTERN_CHARACTERS.sub(r"\\\g<0>", error.path.rstrip("/").rpartition("/")[2])
        find = f"`cafcat find --name {word(name)}` looks for a file of this name in all folders"
        if error.message == NO_SUCH_PREFIX:
            find = f"the pattern {word(f'**/{name}')} means this name in any folder"
        error.hint = f"{find}, and `cafcat ls` lists folders"


def explain_pattern(error: CafcatError, files: "PathListing") -> None:
    """Change the message of an error, and add a hint if it has none, if the missing name is a pattern.

    Args:
        error: The error of a command that accepts patterns.
        files: Looks up the folder of the pattern.
    """
    from cafcat.reading.globs import is_glob

    if isinstance(error, NotFound) and error.path and is_glob(error.path):
        error.message = "no file has this name or matches this pattern"
        error.hint = error.hint or pattern_hint(error.path, files, is_usable=True)


def pattern_hint(pattern: str, files: "PathListing", *, is_usable: bool) -> str:
    """Return a hint for a path with special characters of patterns, such as "photos/*.jpg", that names no file.

    Args:
        pattern: The pattern.
        files: Looks up the folder of the pattern, and folders that the pattern matches.
        is_usable: True if the command accepts patterns.
    """
    from cafcat.reading.globs import literal_prefix
    from cafcat.reading.selecting import glob_range
    from cafcat.support.paths import from_root, is_text

    if "{" in pattern:
        return "{a,b} has no meaning in a pattern: give several patterns"
    folder = from_root(literal_prefix(pattern).rpartition("/")[0])
    where = f" {argument(folder)}" if folder and files.folders_among([folder]) else ""
    name = pattern.rstrip("/").rpartition("/")[2]
    matches_folders = is_text(pattern) and not files.absent([[glob_range(pattern, below=True)]])
    if matches_folders and is_usable:
        return f"the pattern matches folders: {word(pattern.rstrip('/') + '/**')} means the files below them"
    if matches_folders or not name.strip("*"):
        return f"`cafcat ls{where}` lists this folder" if where else "`cafcat ls` lists the catalog"
    if not _WILDCARD.search(name):  # brackets are more often a part of a name than a list of characters
        plain = _PATTERN_CHARACTERS.sub(r"\\\g<0>", name)
        return f"`cafcat find --name {word(plain)}` looks for a file of this name in all folders"
    return f"`cafcat find{where} --name {word(name)}` finds files by a pattern"


def hint_for_folder(name: str, files: "PathListing") -> str:
    """Return a hint for a command that takes no pattern, if the catalog has no file or folder of a name.

    Args:
        name: The name, which may be a pattern.
        files: Looks up the folder of a pattern.
    """
    from cafcat.reading.globs import is_glob

    return pattern_hint(name, files, is_usable=False) if is_glob(name) else "`cafcat ls` lists the catalog"


def means_everything(prefix: str) -> bool:
    """Return True if a prefix, as typed, means the whole catalog."""
    return prefix in ("", ".", "./")


def warn_of_empty_folders(call: "Call", catalog: "Catalog", folders: "Collection[str]") -> None:
    """Warn of each folder below which the catalog has no file: the name of the folder may be mistyped.

    Args:
        call: The call of the command.
        catalog: The catalog.
        folders: The folders, each with "/" at its end; "", for all files, is left out.
    """
    names = {folder: folder.removesuffix("/") for folder in folders if folder}
    known = catalog.files.folders_among(set(names.values()))
    for folder, name in names.items():
        if name not in known:
            call.warn(f"the catalog has no file below {call.output.shown(folder)}")

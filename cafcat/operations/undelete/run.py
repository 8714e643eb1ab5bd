"""Bring removed files back."""

import re
from collections.abc import Iterable, Iterator

from cafcat.catalog.files.scope import successor
from cafcat.model import RetiredLocation
from cafcat.operations.audit import recorded
from cafcat.operations.names import check_names
from cafcat.operations.removing import Removing
from cafcat.operations.undelete.options import UndeleteOptions
from cafcat.operations.undelete.report import UndeleteReport
from cafcat.reading.globs import is_glob, literal_prefix, regex_of_path_glob
from cafcat.session import Session
from cafcat.support.paths import from_root

__all__ = ["removed", "removed_matching", "run"]


@recorded
def run(session: Session, options: UndeleteOptions) -> UndeleteReport:
    """Bring removed files back, all in one transaction.

    Until the commit, an exception of `Session.checkpoint` leaves the catalog unchanged.

    Raises:
        InvalidInput: One of `folders` cannot be the name of a folder of the catalog; `paths` or `folders` is a
            single string; or a path is no text.
        CatalogUnavailable: The files could not be brought back, or the outcome of the commit is unknown.
        CatalogOutdated: The database has another schema.
    """
    paths, folders = check_names(options.paths), check_names(options.folders)
    try:
        return Removing(session).undelete(paths, folders)
    finally:
        session.progress.end()


def removed(session: Session, prefix: str = "") -> Iterator[RetiredLocation]:
    """Yield the removed files that `undelete` can restore, in path order.

    Args:
        session: The session.
        prefix: Folder, whose files are yielded, or path of a file, as the user typed it; "" for all files.

    Raises:
        InvalidInput: The name cannot be that of a folder.
    """
    return Removing(session).removed(prefix)


def removed_matching(session: Session, names: Iterable[str]) -> Iterator[str]:
    """Yield the paths of removed files that names and shell patterns mean, in the order of the names.

    A name that is no pattern is yielded as it is, or without a leading "./" or "/" that no removed file has. So is
    a pattern that is the path of a removed file, or matches none: `undelete` then reports the pattern as missing.

    Args:
        session: The session.
        names: Paths and patterns, as typed.
    """
    for name in names:
        yield from _matching(session, name) if is_glob(name) else (_in_catalog(session, name),)


def _in_catalog(session: Session, typed: str) -> str:
    if not typed.startswith(("./", "/")) or session.catalog.removal.removed(typed, successor(typed)).files:
        return typed
    return from_root(typed)


def _matching(session: Session, pattern: str) -> Iterator[str]:
    name = from_root(pattern)
    folder = literal_prefix(name).rpartition("/")[0]
    expression = re.compile(regex_of_path_glob(name), re.DOTALL)
    paths = [found.location.path for found in removed(session, folder)]
    matching = [path for path in paths if expression.fullmatch(path)]
    yield from [pattern] if name in paths or not matching else matching

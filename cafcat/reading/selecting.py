"""Finds the files that names and shell patterns of the user mean. The catalog matches the patterns."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from cafcat.catalog.files.ranges import PathRange, disjoint, prefix_range, scope_ranges
from cafcat.catalog.files.scope import PathScope
from cafcat.errors import CafcatError, InvalidInput, NotFound
from cafcat.model import NO_SUCH_PREFIX
from cafcat.reading.globs import is_glob, literal_prefix, regex_of_path_glob
from cafcat.reading.lookup import PathListing, locate_many
from cafcat.support.paths import check_text, file_of, folder_of, from_root, is_text

__all__ = ["PresenceCatalog", "Selection", "expanded", "glob_range", "is_pattern", "select"]


class PresenceCatalog(Protocol):
    """Finds out in which ranges of paths a catalog has files."""

    def absent(self, groups: Sequence[Sequence[PathRange]]) -> list[int]:
        """Return the indexes of the groups of ranges in which the catalog has no file."""


class Selection(NamedTuple):
    """The files that prefixes and patterns mean.

    Attributes:
        ranges: Ranges with these files and no others; disjoint, and in the order of paths.
        missing: The prefixes and patterns for which the catalog has no file, as they were typed.
        common: A text with which the paths of all these files begin, except for a file with the name of a folder
            that this text ends with.
    """

    ranges: Sequence[PathRange]
    missing: Sequence[str]
    common: str

    def errors(self, message: str = NO_SUCH_PREFIX) -> list[tuple[str, CafcatError]]:
        """Return each missing prefix or pattern with its error."""
        return [(name, NotFound(message, path=name)) for name in self.missing]


def glob_range(pattern: str, *, below: bool = False) -> PathRange:
    """Return the range of the paths that a shell pattern matches.

    Args:
        pattern: The pattern, as typed. A leading "./" or "/" is dropped.
        below: True to include everything below the folders that the pattern matches.
    """
    name = from_root(pattern)
    return prefix_range(literal_prefix(name), regex_of_path_glob(name, below=below))


def select(catalog: PresenceCatalog, names: Sequence[str]) -> Selection:
    """Return the files that prefixes and patterns mean: files, and everything below folders.

    A name with the characters of a pattern is a pattern only if the catalog has no file or folder of this name.
    This takes one query, and another one if there are patterns.

    Args:
        catalog: The catalog.
        names: The names, as typed. "" and "." stand for all files, which are never missing.

    Raises:
        InvalidInput: No path can have one of the names.
    """
    for name in names:
        if not is_text(name):
            raise InvalidInput("a name that is not valid UTF-8, or has a NUL, cannot be in the catalog", path=name)
    groups = [scope_ranges(PathScope(folder_of(name), file_of(name))) for name in names]
    absent = [number for number in catalog.absent(groups) if folder_of(names[number])]
    patterns = [number for number in absent if is_glob(names[number])]
    for number in patterns:
        groups[number] = [glob_range(names[number], below=True)]
    unmatched = catalog.absent([groups[number] for number in patterns]) if patterns else []
    matched = set(patterns).difference(patterns[n] for n in unmatched)
    missing = [names[number] for number in absent if number not in matched]
    begins = [
        literal_prefix(from_root(name)) if number in matched else folder_of(name)
        for number, name in enumerate(names)
    ]
    common = os.path.commonprefix(begins)  # noqa: RUF071 - by characters: the end need not be that of a folder
    return Selection(disjoint([one for group in groups for one in group]), missing, common)


def expanded(files: PathListing, names: Iterable[str], *, below: bool = False) -> Iterator[str]:
    """Yield the paths of files that names and patterns mean, in the order of the names.

    A name that is no pattern is yielded as it is, also if the catalog does not have it. So is a pattern that is the
    path of a file, or matches none: whoever looks up the names then reports the pattern as missing.

    Args:
        files: Lists the files.
        names: Paths and patterns, as typed.
        below: True if a pattern also stands for everything below the folders that it matches.
    """
    for name in names:
        check_text(name)
        if not is_pattern(files, name, below=below):
            yield name
            continue
        found = False
        for page in files.paths_in([glob_range(name, below=below)]):
            found = True
            yield from page
        if not found:
            yield name


def is_pattern(files: PathListing, name: str, *, below: bool = False) -> bool:
    """Return True if a name is a shell pattern, and the catalog has no file of this name.

    Args:
        files: Looks up the name.
        name: The name, as typed.
        below: True if the catalog must not have a folder of this name, either.
    """
    if not is_glob(name) or not is_text(name):
        return False
    if below:
        return bool(files.absent([scope_ranges(PathScope(folder_of(name), file_of(name)))]))
    return isinstance(locate_many(files, [name])[name], CafcatError)

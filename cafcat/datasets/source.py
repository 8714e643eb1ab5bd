"""What data sets read: the files of a repository or of a snapshot."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from cafcat.errors import CafcatError, InvalidInput
from cafcat.model import LOOKED_UP_PATHS, Location
from cafcat.packed_files import PackedFiles
from cafcat.snapshots import Snapshot

__all__ = ["FileSource", "Transform", "locations_of", "paths_of", "sample_of"]

FileSource = PackedFiles | Snapshot
"""A Repository finds files in the database. A Snapshot needs no database, and never changes."""
Transform = Callable[[str, bytes], Any]
"""Makes a sample of the path and the bytes of a file."""


def paths_of(source: FileSource, paths: Iterable[str] | None, prefix: str) -> Iterator[str]:
    """Yield the paths of a data set: those given, or those of all files below a folder, in path order.

    Raises:
        InvalidInput: `paths` is a single text.
    """
    if paths is None:
        return (location.path for location in source.list(prefix))
    if isinstance(paths, str | bytes):
        raise InvalidInput("paths must be a list of names, not one name", hint=f"write [{paths!r}]")
    return iter(paths)


def locations_of(source: FileSource, paths: Iterable[str] | None, prefix: str) -> Iterator[tuple[str, Location]]:
    """Yield each path of a data set with the location of its file.

    Raises:
        NotFound, InvalidInput: A given path does not exist, or `paths` is a single text.
    """
    if paths is None:
        yield from ((location.path, location) for location in source.list(prefix))
        return
    rest = paths_of(source, paths, prefix)
    while some := list(islice(rest, LOOKED_UP_PATHS)):
        found = source.locate_many(some)
        for path in some:
            location = found[path]
            if isinstance(location, CafcatError):
                raise location
            yield path, location


def sample_of(path: str, content: bytes | CafcatError, transform: Transform | None) -> Any:
    """Return the sample that a file makes. Raises the error that was found in place of the content."""
    if isinstance(content, CafcatError):
        raise content
    return (path, content) if transform is None else transform(path, content)

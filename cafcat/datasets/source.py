"""What data sets read: the files of a repository or of a snapshot."""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any

from cafcat.errors import CafcatError, Conflict, InvalidInput, NotFound
from cafcat.model import LOOKED_UP_PATHS, Location
from cafcat.packed_files import PackedFiles
from cafcat.reading.reader import FILE_ERRORS
from cafcat.snapshots import Snapshot

__all__ = ["Contents", "FileSource", "Transform", "locations_of", "paths_of", "sample_of"]

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


class Contents:
    """Reads the contents of files in the way that is fastest for their source.

    Snapshots of local folders are read file by file: the operating system reads ahead, and a shared read costs more
    than the system calls that it saves. Near files of other sources share a request.
    """

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self._is_local = isinstance(source, Snapshot) and source.is_local

    def read(self, paths: Collection[str]) -> dict[str, bytes | CafcatError]:
        """Return for each path the bytes of its file, or why the file cannot be read.

        Args:
            paths: Paths of files; a path may come twice. If they have the order of chunks and offsets, a disk reads
                forwards.

        Raises:
            AccessDenied, Unavailable: The error concerns all files of a store.
        """
        if self._is_local:
            return {path: self._read_single(path) for path in paths}
        return dict(self._source.read_many(dict.fromkeys(paths)))

    def _read_single(self, path: str) -> bytes | CafcatError:
        try:
            return self._source.read(path)
        except (Conflict, InvalidInput, NotFound, *FILE_ERRORS) as error:
            return error


def sample_of(path: str, content: bytes | CafcatError, transform: Transform | None) -> Any:
    """Return the sample that a file makes. Raises the error that was found in place of the content."""
    if isinstance(content, CafcatError):
        raise content
    return (path, content) if transform is None else transform(path, content)

"""Look up where files are, by names as users type them."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Protocol
from uuid import UUID

from cafcat.errors import CafcatError, InvalidInput, NotFound
from cafcat.model import LOOKED_UP_PATHS, Location
from cafcat.support.paths import is_text

__all__ = ["LocationCatalog", "PathLookup", "ReplicaLookup", "locate_as_typed", "locate_many"]


class PathLookup(Protocol):
    """Look-ups by path."""

    def locate(self, path: str) -> Location:
        """Return where a file is. Raises NotFound; InvalidInput for a name that no path can have."""

    def locate_many(self, paths: Collection[str]) -> dict[str, Location]:
        """Return the locations of those of up to LOOKED_UP_PATHS paths that exist."""

    def folders_among(self, names: Collection[str]) -> set[str]:
        """Return the names that are folders."""


class ReplicaLookup(Protocol):
    """Look-ups of the objects that have the bytes of a chunk."""

    def replicas_of(self, chunk: UUID) -> list[tuple[str, str]]:
        """Return store URL and key of the chunk's own object, as they are now, then of each copy."""


class LocationCatalog(Protocol):
    """The catalog that files are looked up in: a database, or a snapshot of one."""

    @property
    def files(self) -> PathLookup: ...

    @property
    def copies(self) -> ReplicaLookup: ...


def locate_as_typed(files: PathLookup, path: str) -> Location:
    """Return where a file is whose name begins with "./" or "/" although no path in the catalog does. Raises
    NotFound, InvalidInput."""
    names = list(_names(path))
    for name in names[1:]:
        with suppress(NotFound):
            return files.locate(name)
    raise _absent(names[-1], files.folders_among(names[-1:]))


def locate_many(files: PathLookup, paths: Sequence[str]) -> dict[str, Location | CafcatError]:
    """See FileReader.locate_many."""
    found: dict[str, Location | CafcatError] = {}
    for start in range(0, len(paths), LOOKED_UP_PATHS):
        found |= _locate_some(files, paths[start : start + LOOKED_UP_PATHS])
    return found


def _locate_some(files: PathLookup, paths: Sequence[str]) -> dict[str, Location | CafcatError]:
    others = {path: list(_names(path)) for path in paths if path.startswith((".", "/"))}
    possible = set(paths).union(*others.values())
    if not is_text("".join(possible)):
        possible = {name for name in possible if is_text(name)}
    locations = files.locate_many(possible)
    found = {path: locations.get(path) for path in paths}
    for path, names in others.items():
        found[path] = next((locations[name] for name in names if name in locations), None)
    missing = {path: others.get(path, [path])[-1] for path, location in found.items() if location is None}
    folders = files.folders_among(possible.intersection(missing.values()))
    return found | {path: _absent(name, folders) for path, name in missing.items()}  # type: ignore[return-value]


def _names(path: str) -> Iterator[str]:
    """Yield the names that the catalog may have for a typed one: itself, then without a leading "./" or "/"."""
    yield path
    while (name := path.removeprefix("./").lstrip("/")) != path:
        yield name
        path = name


def _absent(name: str, folders: set[str]) -> CafcatError:
    if not is_text(name):
        return InvalidInput("a name that is not valid UTF-8, or has a NUL, cannot be in the catalog", path=name)
    if name in folders:
        return NotFound("this is a folder of the catalog, not a file", path=name, hint="use ls, find or extract")
    return NotFound("the catalog has no such file", path=name)

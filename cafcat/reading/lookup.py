"""Looks up where files are, by names as users type them."""

import os
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from cafcat.errors import CafcatError, Conflict, InvalidInput, NotFound, shown_path
from cafcat.model import LOOKED_UP_PATHS, NO_SUCH_FILE, ChunkFiles, Folder, Location
from cafcat.support.paths import is_text, not_a_text

if TYPE_CHECKING:
    from cafcat.catalog.files.ranges import PathRange
    from cafcat.catalog.files.scope import FindFilter

__all__ = [
    "LocationCatalog",
    "PathListing",
    "PathLookup",
    "ReplicaLookup",
    "explain_conflict",
    "locate_as_typed",
    "locate_many",
]


class PathLookup(Protocol):
    """Finds files and folders of a catalog by path."""

    def locate(self, path: str) -> Location:
        """Return where a file is.

        Raises:
            NotFound: No file has the path.
            InvalidInput: No path can have this text.
        """

    def locate_many(self, paths: Collection[str]) -> dict[str, Location]:
        """Return the location of each of at most LOOKED_UP_PATHS paths. Paths that do not exist are left out."""

    def locate_plain(self, paths: Collection[str]) -> list[ChunkFiles]:
        """Return files by chunk, if their bytes in the chunk need no decoding. Any other file may be left out."""

    def folders_among(self, names: Collection[str]) -> set[str]:
        """Return those of the names that are folders of the catalog, with at least one file below them."""


class PathListing(PathLookup, Protocol):
    """Finds files by path, and lists the files in ranges of paths."""

    @property
    def no_such_prefix(self) -> str:
        """Message of the error for a name that is neither a file nor a folder."""

    def pages(self, prefix: str, where: "FindFilter | None" = None) -> Iterator[Sequence[Location]]:
        """Yield the file with a name, as typed, and all files below this folder that meet conditions, in lists."""

    def path_pages(self, prefix: str, where: "FindFilter | None" = None) -> Generator[Sequence[str], None, None]:
        """Yield the paths of the files that `pages` yields, in lists."""

    def level(self, prefix: str) -> Iterator[Location | Folder]:
        """Yield the file with a name, as typed, and then the files and folders directly in this folder."""

    def absent(self, groups: "Sequence[Sequence[PathRange]]") -> list[int]:
        """Return the indexes of the groups of ranges in which the catalog has no file."""

    def pages_in(self, ranges: "Sequence[PathRange]", page_rows: int = ...) -> Iterator[Sequence[Location]]:
        """Yield the files in ranges of paths, one range after the other, in lists and path order."""

    def paths_in(self, ranges: "Sequence[PathRange]") -> Iterator[Sequence[str]]:
        """Yield the paths of the files that `pages_in` yields, in lists."""

    def pruned_in(self, ranges: "Sequence[PathRange]") -> Iterator[Sequence[str]]:
        """Yield the paths in ranges whose file cannot be read any more, because `prune` deleted its chunk."""

    def totals_in(self, ranges: "Sequence[PathRange]") -> tuple[int | None, int | None]:
        """Return the number of these files, and their total size in bytes; None for each that is unknown."""

    def chunks_in(self, ranges: "Sequence[PathRange]") -> set[UUID]:
        """Return the UUIDs of the chunks of these files."""


class ReplicaLookup(Protocol):
    """Finds the objects that have the bytes of a chunk."""

    def replicas_of(self, chunk: UUID) -> list[tuple[str, str]]:
        """Return store URL and key of the chunk's own object, where it is now, then of each of its copies."""

    def has_copies_of(self, store: str) -> bool:
        """Return True if another store has a copy of any chunk of the store with this URL."""

    def lacking_changes(self, chunk: UUID) -> int:
        """Return how many later changes the backup lacked from which the catalog was restored; else 0.

        The result is 0, too, for a chunk that is newer than the restore.
        """


class LocationCatalog(Protocol):
    """The catalog in which files are looked up: a database, or a snapshot of one."""

    @property
    def is_snapshot(self) -> bool:
        """True for a snapshot, whose URLs of stores do not change."""

    @property
    def files(self) -> PathLookup:
        """Finds files and folders by path."""

    @property
    def copies(self) -> ReplicaLookup:
        """Finds the objects that have the bytes of a chunk."""


def locate_as_typed(files: PathLookup, path: str) -> Location:
    """Return where a file is whose name was typed with a leading "./" or "/".

    The name is shortened step by step: each step removes one "./" and all slashes that then lead. The file of the
    first shortened name that the catalog has is returned.

    Args:
        files: Finds files by path.
        path: The name as typed. The catalog is known to have no file with exactly this name.

    Raises:
        NotFound: The catalog has no file with a shortened name, either. The message says if the shortest name is
            that of a folder.
        InvalidInput: No path can have the name.
    """
    names = list(_names(path))
    for name in names[1:]:
        with suppress(NotFound):
            return files.locate(name)
    raise _absent(names[-1], files.folders_among([_as_folder(names[-1])]))


def locate_many(files: PathLookup, paths: Sequence[str]) -> dict[str, Location | CafcatError]:
    """Return for each path where the file is, or why it cannot be found. `FileReader.locate_many` calls this.

    Errors are values, not exceptions: NotFound, and InvalidInput for a name that no path can have.
    """
    given: Sequence[object] = paths  # type checkers do not see all callers
    texts = [path for path in given if isinstance(path, str)]
    found: dict[str, Location | CafcatError] = {}
    if len(texts) < len(paths):
        found = {path: not_a_text(path) for path in set(paths).difference(texts)}
    for start in range(0, len(texts), LOOKED_UP_PATHS):
        found |= _locate_some(files, texts[start : start + LOOKED_UP_PATHS])
    return found


def explain_conflict(files: PathLookup, error: Conflict, path: str, name: str) -> None:
    """Change a Conflict if the catalog has a file and a folder where the output has only one: see `FileReader`."""
    output, taken = error.path or "", path
    while name and not f"/{output}".endswith(f"/{name}"):
        name, _, last = name.rpartition("/")
        taken = taken[: -len(last) - 1]
    if not name or os.path.islink(output) or (taken == path and not os.path.isdir(output)):
        return
    with suppress(CafcatError):  # without the catalog, the message is only less exact
        if files.folders_among([path]) if taken == path else files.locate_many([taken]):
            error.message = (
                f"the catalog has a file and a folder named {shown_path(taken)}: write them to two folders"
            )
            error.hint = None


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
    folders = files.folders_among({_as_folder(name) for name in possible.intersection(missing.values())})
    return found | {path: _absent(name, folders) for path, name in missing.items()}  # type: ignore[return-value]


def _names(path: str) -> Iterator[str]:
    """Yield the paths that a typed name may mean: as it is, then without its leading "./" or "/", step by step."""
    yield path
    while (name := path.removeprefix("./").lstrip("/")) != path:
        yield name
        path = name


def _as_folder(name: str) -> str:
    """Return a name without slashes at its end, as `ls` prints those of folders."""
    return name.rstrip("/") or name


def _absent(name: str, folders: set[str]) -> CafcatError:
    """Return the error for a name that no file has, for every command that reads files, and for snapshots."""
    if not is_text(name):
        return InvalidInput("a name that is not valid UTF-8, or has a NUL, cannot be in the catalog", path=name)
    if _as_folder(name) in folders:
        return NotFound("this is a folder of the catalog, not a file", path=name, hint="use ls, find or extract")
    return NotFound(NO_SUCH_FILE, path=name)

"""One file: one query, one range read, and its checksum before anybody relies on the bytes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.lookup import LOOKED_UP_PATHS
from cafcat.checksums import crc32c
from cafcat.errors import AccessDenied, CafcatError, Corrupt, InvalidInput, NotFound, StoreFailed, Unavailable
from cafcat.model import Location
from cafcat.resolve.plan import Wanted
from cafcat.stores.base import RemoteStore, Store

__all__ = ["Reading", "check", "error_of_file"]


def check(location: Location, found: int) -> None:
    """Raises Corrupt unless `found` is the CRC-32C that the catalog has of the file."""
    if found != location.crc32c:
        message = f"the file's bytes are damaged: CRC-32C {found:08x} where the catalog has {location.crc32c:08x}"
        raise Corrupt(message, path=location.path, chunk=str(location.chunk), byte=location.start_byte)


def error_of_file(location: Location, error: CafcatError) -> CafcatError:
    """What an error of a store means for one file. The catalog has the file: an object that is not there is
    damage, not a wrong name."""
    if isinstance(error, StoreFailed):
        return StoreFailed(error.message, path=location.path, hint=error.hint)
    if isinstance(error, NotFound):
        message = f"the chunk is not where it was: {error.message}"
        return Corrupt(message, path=location.path, chunk=str(location.chunk), byte=location.start_byte)
    return Corrupt(error.message, path=location.path, chunk=error.chunk, byte=error.byte)


class Reading:
    """Reads files by path."""

    def __init__(self, catalog: Catalog, store_of: Callable[[str], Store]) -> None:
        """`store_of` gives the store of a URL in `chunks.store`."""
        self._catalog = catalog
        self.store_of = store_of

    def locate(self, path: str) -> Location:
        """One query. A leading "./" or "/" is dropped if the catalog has no such name. Raises NotFound."""
        names = list(_names(path))
        for name in names:
            with suppress(NotFound):
                return self._catalog.files.locate(name)
        raise _absent(names[-1], self._catalog.files.folders_among(names[-1:]))

    def locate_many(self, paths: Sequence[str]) -> dict[str, Location | CafcatError]:
        """The same for many: one query for each thousand of them, and one for what is not there. The values are
        locations, or why there is none: NotFound, InvalidInput for what cannot be in a catalog."""
        found: dict[str, Location | CafcatError] = {}
        for start in range(0, len(paths), LOOKED_UP_PATHS):
            names = {path: list(_names(path)) for path in paths[start : start + LOOKED_UP_PATHS]}
            found |= self._locate_some(names)
        return found

    def _locate_some(self, names: dict[str, list[str]]) -> dict[str, Location | CafcatError]:
        possible = {name for tried in names.values() for name in tried if _can_be_a_path(name)}
        places = self._catalog.files.locate_many(possible)
        missing = {tried[-1] for tried in names.values() if not any(name in places for name in tried)}
        folders = self._catalog.files.folders_among(missing & possible)
        return {
            path: next((places[name] for name in tried if name in places), None) or _absent(tried[-1], folders)
            for path, tried in names.items()
        }

    def object_of(self, location: Location) -> str:
        """Absolute path or URL of the archive."""
        return self.store_of(location.store).locate(location.object_key)

    def read(self, location: Location, start: int = 0, end: int | None = None) -> bytes:
        """Bytes `[start, end)` of the file, cut at its end; a negative start counts from the end. All of it is
        checked against its checksum, a part cannot be. Raises Corrupt, InvalidInput if the range begins beyond
        the file, AccessDenied, StoreFailed, Unavailable if the whole store is out of reach."""
        wanted = self.wanted(location.path, location, start, end)
        store = self.store_of(location.store)
        with self.told_of(location):
            data = store.read(location.object_key, wanted.start_byte, wanted.end_byte)
        if wanted.is_whole:
            check(location, crc32c(data))
        return data

    def stream(self, location: Location, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB. The last block of a whole file comes only if the checksum is
        right; until then the bytes are unproven."""
        return self.blocks(self.wanted(location.path, location, start, end))

    def wanted(self, name: str, location: Location, start: int = 0, end: int | None = None) -> Wanted:
        """Bytes `[start, end)` of a file as bytes of its chunk. Raises InvalidInput as `read` does."""
        return Wanted(name, location, *_span(location, start, end))

    def blocks(self, wanted: Wanted) -> Iterator[bytes]:
        """As `stream`."""
        blocks = self._unchecked(wanted)
        return _checked(wanted.location, blocks) if wanted.is_whole else blocks

    def _unchecked(self, wanted: Wanted) -> Iterator[bytes]:
        place = wanted.location
        with self.told_of(place):
            yield from self.store_of(place.store).stream(place.object_key, wanted.start_byte, wanted.end_byte)

    @contextmanager
    def told_of(self, location: Location) -> Iterator[None]:
        """Errors of a store as errors of one file. Raises Unavailable if it is not the object that is gone but the
        whole store."""
        try:
            yield
        except (Corrupt, NotFound, StoreFailed) as error:
            if not isinstance(error, Corrupt):
                self.check_in_reach(self.store_of(location.store))
            raise error_of_file(location, error) from error

    def check_in_reach(self, store: Store) -> None:
        """After a read over the network that failed: raises Unavailable if the bucket is gone or nobody answers,
        so that not every file finds that out by itself."""
        if not isinstance(store, RemoteStore):
            return
        try:
            next(store.list(), None)
        except AccessDenied:
            return  # it answers; who may read need not be allowed to list
        except (NotFound, StoreFailed) as error:
            raise Unavailable(f"the store is out of reach: {error.message}", hint=error.hint) from error


def _checked(location: Location, blocks: Iterator[bytes]) -> Iterator[bytes]:
    checksum = 0
    held = b""
    for block in blocks:
        if held:
            yield held
        checksum = crc32c(block, checksum)
        held = block
    check(location, checksum)
    if held:
        yield held


def _span(location: Location, start: int, end: int | None) -> tuple[int, int]:
    """Bytes of the chunk for a range of the file."""
    size = location.size_bytes
    first = max(0, size + start) if start < 0 else start
    last = size if end is None else min(end, size)
    if end is not None and end < first:
        raise InvalidInput(f"a range of {start} to {end} makes no sense", path=location.path)
    if first > size or (first == size and size > 0):
        raise InvalidInput(f"the range begins at {first}, the file has {size} bytes", path=location.path)
    return location.start_byte + first, location.start_byte + last


def _names(path: str) -> Iterator[str]:
    """Names that the catalog may have for what was typed: itself, then without a leading "./" or "/"."""
    yield path
    while (name := path.removeprefix("./").lstrip("/")) != path:
        yield name
        path = name


def _can_be_a_path(name: str) -> bool:
    """Whether Postgres can be asked for it: UTF-8 without NUL."""
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def _absent(name: str, folders: set[str]) -> CafcatError:
    if not _can_be_a_path(name):
        return InvalidInput("a name that is not valid UTF-8, or has a NUL, cannot be in the catalog", path=name)
    return _is_folder(name) if name in folders else NotFound("the catalog has no such file", path=name)


def _is_folder(name: str) -> NotFound:
    return NotFound("this is a folder of the catalog, not a file", path=name, hint="use ls, find or extract")

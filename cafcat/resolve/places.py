"""Where the bytes of a chunk are: in its own object and, once that fails, in the copies of it.

Nothing is asked of the catalog, and nothing is remembered, as long as all goes well.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from uuid import UUID

from cafcat.errors import (
    AccessDenied,
    CafcatError,
    Conflict,
    Corrupt,
    NotFound,
    StoreFailed,
    Unavailable,
)
from cafcat.model import Location
from cafcat.stores.base import RemoteStore, Store

__all__ = ["FAILURES", "ObjectPlace", "Places", "Trial"]

FAILURES: Final = (AccessDenied, Conflict, Corrupt, NotFound, StoreFailed)
"""What a store raises that cannot give what it should have: another may."""

_AVOIDED_SECONDS: Final = 300.0
"""So long an object or a store that failed is not asked again if there is a copy: it may take a server's whole
patience to fail. After that it may have been mended."""
_LOOKED_SECONDS: Final = 30.0
"""So long it holds that a store is out of reach, when the next of several reads that are under way fails."""
_KEPT_CHUNKS: Final = 10_000
"""Of so many chunks is remembered where their copies are."""


class ObjectPlace(NamedTuple):
    """An object that has the bytes of a chunk: URL of its store, and key."""

    store: str
    object_key: str


class _Silence(NamedTuple):
    """A store that is out of reach: since when, in seconds of the monotonic clock, and why."""

    since: float
    message: str
    hint: str | None

    def as_error(self) -> Unavailable:
        return Unavailable(f"the store is out of reach: {self.message}", hint=self.hint)


class Places:
    """What is known of objects that failed, and of their copies. Safe to share by threads."""

    def __init__(
        self,
        copies_of: Callable[[UUID], list[tuple[str, str]]],
        store_of: Callable[[str], Store],
        warn: Callable[[str], object],
    ) -> None:
        """`copies_of` gives store and key of every copy of a chunk. `warn` is told once of each chunk that was read
        from a copy, or of the store if that is out of reach."""
        self._copies_of = copies_of
        self._store_of = store_of
        self._warn = warn
        self._copies: dict[UUID, tuple[float, list[ObjectPlace]]] = {}
        self._avoided: dict[UUID, float] = {}
        self._silent: dict[str, _Silence] = {}
        self._warned: set[str | UUID] = set()

    @property
    def has_failures(self) -> bool:
        """Whether anything failed that is remembered."""
        return bool(self._avoided or self._silent)

    def instead(self, location: Location) -> ObjectPlace | None:
        """The copy to read, if it is known that the chunk's own object cannot be read."""
        if not self.is_avoided(location):
            return None
        copies = self.copies(location.chunk)
        if copies and location.store in self._silent:
            self._tell_of_store(location.store)
        return copies[0] if copies else None

    def copies(self, chunk: UUID) -> list[ObjectPlace]:
        """One query, at most every few minutes for each chunk."""
        known_until, places = self._copies.get(chunk, (0.0, []))
        if known_until < time.monotonic():
            if len(self._copies) >= _KEPT_CHUNKS:
                self._copies.clear()
            places = [ObjectPlace(store, key) for store, key in self._copies_of(chunk)]
            self._copies[chunk] = (time.monotonic() + _AVOIDED_SECONDS, places)
        return places

    def own_failed(self, location: Location, error: CafcatError) -> Unavailable | None:
        """Notes it. What it means if the whole store is out of reach, so that not every chunk finds that out by
        itself: over a network, that is looked at now."""
        if isinstance(error, Corrupt):
            return None  # some bytes are wrong, others need not be
        store = self._store_of(location.store)
        if isinstance(store, RemoteStore) or isinstance(error, NotFound):
            self._avoided[location.chunk] = time.monotonic() + _AVOIDED_SECONDS
        if isinstance(store, RemoteStore) and isinstance(error, NotFound | StoreFailed):
            return self._reach(store, location.store)
        return None

    def read_from(self, place: ObjectPlace, location: Location, error: CafcatError | None) -> None:
        """A copy, or after all the own object, gave the bytes. Says so once; `error` is what was wrong with the own
        one."""
        if place == (location.store, location.object_key):
            self._avoided.pop(location.chunk, None)
            self._silent.pop(location.store, None)
        elif location.store in self._silent:
            self._tell_of_store(location.store)
        elif error is not None:
            what = _what_is_wrong(location, error)
            advice = error.hint if isinstance(error, AccessDenied) else "run cafcat repair"
            self._tell(location.chunk, f"{what}: read from its copy in {place.store}; {advice}")

    def _tell_of_store(self, store: str) -> None:
        self._tell(store, f"{self._silent[store].as_error().message}: reading the copies of its chunks")

    def _tell(self, what: str | UUID, message: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            self._warn(message)

    def is_avoided(self, location: Location) -> bool:
        """Whether the own object failed a short while ago: then it is asked last."""
        if not self.has_failures:
            return False
        silence = self._silent.get(location.store)
        store_until = 0.0 if silence is None else silence.since + _AVOIDED_SECONDS
        return max(store_until, self._avoided.get(location.chunk, 0.0)) > time.monotonic()

    def _reach(self, store: Store, url: str) -> Unavailable | None:
        known = self._silent.get(url)
        if known is not None and known.since + _LOOKED_SECONDS > time.monotonic():
            return known.as_error()
        try:
            next(iter(store.list()), None)
        except AccessDenied:
            return None  # it answers; who may read need not be allowed to list
        except (NotFound, StoreFailed) as error:
            self._silent[url] = _Silence(time.monotonic(), error.message, error.hint)
            return self._silent[url].as_error()
        self._silent.pop(url, None)
        return None


def _what_is_wrong(location: Location, error: CafcatError) -> str:
    chunk = f"chunk {location.chunk}"
    if isinstance(error, Corrupt):
        at = "" if error.byte is None else f" at byte {error.byte}"
        return f"{chunk} is damaged{at}"
    if isinstance(error, NotFound):
        return f"{chunk} is not where it was ({error.message})"
    return f"{chunk} cannot be read ({error.message})"


class Trial:
    """One attempt to read bytes of a file, wherever they are. Iterate it for the places to try; tell it of each
    whether it failed."""

    def __init__(self, places: Places, location: Location) -> None:
        self._places = places
        self._location = location
        self._own = ObjectPlace(location.store, location.object_key)
        self._error: CafcatError | None = None
        self._unavailable: Unavailable | None = None
        self._of_copies: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[ObjectPlace]:
        """The own object first, and the catalog is asked only when that has failed; last where it failed a short
        while ago."""
        avoided = self._places.is_avoided(self._location)
        if not avoided:
            yield self._own
        yield from self._places.copies(self._location.chunk)
        if avoided:
            yield self._own

    def copies(self) -> Iterator[ObjectPlace]:
        """Only these: the own object has failed already."""
        return iter(self._places.copies(self._location.chunk))

    def failed(self, place: ObjectPlace, error: CafcatError) -> None:
        """`error`: as the store raised it, or Corrupt if the checksum was wrong."""
        if place == self._own:
            self._error = error
            self._unavailable = self._places.own_failed(self._location, error)
        else:
            self._of_copies += (f"{place.store}: {error.message}",)

    def own_failed(self, error: CafcatError) -> None:
        """As `failed`, of the chunk's own object."""
        self.failed(self._own, error)

    def succeeded(self, place: ObjectPlace) -> None:
        """It gave the bytes."""
        if place is not self._own or self._places.has_failures:
            self._places.read_from(place, self._location, self._error)

    @property
    def concerns_all(self) -> bool:
        """Whether what went wrong is not a matter of this one chunk: nobody lets us in, the store is out of
        reach."""
        return self._unavailable is not None or not isinstance(self._error, Corrupt | NotFound | StoreFailed)

    def error(self, location: Location | None = None) -> CafcatError:
        """After all have failed: what is wrong with the own object, as an error of the file at `location` (default:
        the one that was tried). Unavailable if it is not the object that is gone but the whole store."""
        assert self._error is not None  # noqa: S101 - the own object is always among those tried
        error = self._unavailable or _error_of_file(location or self._location, self._error)
        if self._of_copies and error is not self._error:
            error.hint = f"its copies fail, too: {'; '.join(self._of_copies)}"
        error.__cause__ = self._error if error is not self._error else None
        return error


def _error_of_file(location: Location, error: CafcatError) -> CafcatError:
    """What an error of a store means for one file. The catalog has the file: an object that is not there is
    damage, not a wrong name."""
    if isinstance(error, StoreFailed):
        return StoreFailed(error.message, path=location.path, hint=error.hint)
    if isinstance(error, NotFound):
        message = f"the chunk is not where it was: {error.message}"
        return Corrupt(message, path=location.path, chunk=str(location.chunk), byte=location.start_byte)
    if isinstance(error, Corrupt):
        return Corrupt(error.message, path=location.path, chunk=error.chunk, byte=error.byte)
    return error

"""Where the bytes of a chunk are: in its own object and, once that fails, in the copies of it.

Nothing is asked of the catalog, and nothing is remembered, as long as all goes well. After a failure the catalog is
asked once where the chunk is now: its store may have been moved, or migrated to another one, since the look-up.
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
from cafcat.stores.base import Store
from cafcat.stores.presence import elsewhere, why_not_there

__all__ = ["FAILURES", "Replica", "ReplicaAttempts", "Replicas"]

FAILURES: Final = (AccessDenied, Conflict, Corrupt, NotFound, StoreFailed)
"""What a store raises that cannot give what it should have: another may."""

_AVOIDED_SECONDS: Final = 300.0
"""So long an object or a store that failed is not asked again if there is a copy: it may take a server's whole
patience to fail. After that it may have been mended."""
_LOOKED_SECONDS: Final = 30.0
"""So long it holds that a store is out of reach, when the next of several reads that are under way fails."""
_ASKED_SECONDS: Final = 1.0
"""How old the known places of a chunk must be, in seconds, before the catalog is asked again after all failed."""
_KEPT_CHUNKS: Final = 10_000
"""Number of chunks whose places are cached."""


class Replica(NamedTuple):
    """An object that has the bytes of a chunk: URL of its store, and key."""

    store: str
    object_key: str


class _Silence(NamedTuple):
    """A store that is out of reach, or elsewhere: since when, in seconds of the monotonic clock, and why."""

    since: float
    message: str
    hint: str | None

    def as_error(self) -> Unavailable:
        return Unavailable(self.message, hint=self.hint)


class _Known(NamedTuple):
    """The places of a chunk, as the catalog gave them at this time, in seconds of the monotonic clock."""

    asked: float
    places: list[Replica]


class Replicas:
    """What is known of objects that failed, and of their copies. Safe to share by threads."""

    def __init__(
        self,
        replicas_of: Callable[[UUID], list[tuple[str, str]]],
        store_of: Callable[[str], Store],
        warn: Callable[[str], object],
    ) -> None:
        """`replicas_of` gives store and key of the chunk itself, as they are now, then of every copy. `warn` is
        told once of each chunk that was read from a copy, or of the store if that is out of reach."""
        self._places_of = replicas_of
        self._store_of = store_of
        self._warn = warn
        self._known: dict[UUID, _Known] = {}
        self._avoided: dict[Replica, float] = {}
        self._silent: dict[str, _Silence] = {}
        self._warned: set[str | UUID] = set()

    @property
    def has_failures(self) -> bool:
        """Whether anything failed that is remembered."""
        return bool(self._avoided or self._silent)

    def instead(self, location: Location) -> Replica | None:
        """The copy to read, if it is known that the chunk's own object cannot be read."""
        if not self.is_avoided(location):
            return None
        copies = self.copies(location)
        if copies and location.store in self._silent:
            self._tell_of_store(location.store)
        return copies[0] if copies else None

    def copies(self, location: Location, *, again: bool = False) -> list[Replica]:
        """Return where else the chunk of a location is: first its own object, if that has moved since the look-up,
        then its copies. One query, at most every few minutes for each chunk; with `again` at most every second."""
        chunk = location.chunk
        known = self._known.get(chunk)
        oldest = time.monotonic() - (_ASKED_SECONDS if again else _AVOIDED_SECONDS)
        if known is None or known.asked < oldest:
            if len(self._known) >= _KEPT_CHUNKS:
                self._known.clear()
            places = [Replica(store, key) for store, key in self._places_of(chunk)]
            known = self._known[chunk] = _Known(time.monotonic(), places)
        own = _own_place(location)
        return [place for place in known.places if place != own]

    def _is_chunk_itself(self, place: Replica, chunk: UUID) -> bool:
        known = self._known.get(chunk)
        return known is not None and known.places[:1] == [place]

    def own_failed(self, location: Location, error: CafcatError) -> Unavailable | None:
        """Notes it. What it means if the whole store is out of reach, so that not every chunk finds that out by
        itself: over a network, that is looked at now."""
        if isinstance(error, Corrupt):
            return None  # some bytes are wrong, others need not be
        store = self._store_of(location.store)
        is_remote = store.is_remote
        if is_remote or isinstance(error, NotFound):
            self._avoided[_own_place(location)] = time.monotonic() + _AVOIDED_SECONDS
        if isinstance(error, NotFound) or (is_remote and isinstance(error, StoreFailed)):
            return self._reach(store, location)
        return None

    def read_from(self, place: Replica, location: Location, error: CafcatError | None) -> None:
        """A copy, or after all the own object, gave the bytes. Says so once; `error` is what was wrong with the own
        one."""
        if place == (location.store, location.object_key):
            self._avoided.pop(place, None)
            self._silent.pop(location.store, None)
        elif self._is_chunk_itself(place, location.chunk):
            pass  # its store was moved since the look-up: nothing is wrong
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
        return max(store_until, self._avoided.get(_own_place(location), 0.0)) > time.monotonic()

    def _reach(self, store: Store, location: Location) -> Unavailable | None:
        url = location.store
        known = self._silent.get(url)
        if known is not None and known.since + _LOOKED_SECONDS > time.monotonic():
            return known.as_error()
        try:
            error = self._absence(store, location)
        except AccessDenied:
            return None  # it answers; who may read need not be allowed to list
        if error is not None:
            self._silent[url] = _Silence(time.monotonic(), error.message, error.hint)
            return error
        self._silent.pop(url, None)
        return None

    @staticmethod
    def _absence(store: Store, location: Location) -> Unavailable | None:
        try:
            why = why_not_there(store, location.object_key)
        except StoreFailed as error:
            return Unavailable(f"the store is out of reach: {error.message}", hint=error.hint)
        return None if why is None else elsewhere(location.store, why)


def _own_place(location: Location) -> Replica:
    return Replica(location.store, location.object_key)


def _what_is_wrong(location: Location, error: CafcatError) -> str:
    chunk = f"chunk {location.chunk}"
    if isinstance(error, Corrupt):
        at = "" if error.byte is None else f" at byte {error.byte}"
        return f"{chunk} is damaged{at}"
    if isinstance(error, NotFound):
        return f"{chunk} is not where it was ({error.message})"
    return f"{chunk} cannot be read ({error.message})"


class ReplicaAttempts:
    """One attempt to read bytes of a file, wherever they are. Iterate it for the places to try; tell it of each
    whether it failed."""

    def __init__(self, places: Replicas, location: Location) -> None:
        self._places = places
        self._location = location
        self._own = _own_place(location)
        self._error: CafcatError | None = None
        self._unavailable: Unavailable | None = None
        self._of_copies: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Replica]:
        """The own object first, and the catalog is asked only when that has failed; last where it failed a short
        while ago."""
        avoided = self._places.is_avoided(self._location)
        if not avoided:
            yield self._own
        yield from self._places.copies(self._location)
        if avoided:
            yield self._own
        yield from self._moved()

    def copies(self) -> Iterator[Replica]:
        """Only these: the own object has failed already."""
        yield from self._places.copies(self._location)
        yield from self._moved()

    def _moved(self) -> Iterator[Replica]:
        """Replicas that the catalog has by now, and did not have when it was asked last."""
        tried = self._places.copies(self._location)
        yield from (place for place in self._places.copies(self._location, again=True) if place not in tried)

    def failed(self, place: Replica, error: CafcatError) -> None:
        """`error`: as the store raised it, or Corrupt if the checksum was wrong."""
        if place == self._own:
            self._error = error
            self._unavailable = self._places.own_failed(self._location, error)
        else:
            self._of_copies += (f"{place.store}: {error.message}",)

    def own_failed(self, error: CafcatError) -> None:
        """As `failed`, of the chunk's own object."""
        self.failed(self._own, error)

    def succeeded(self, place: Replica) -> None:
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

"""Reads from the replicas of a chunk: its own object and its copies, one after the other.

The catalog is queried for copies only after a read has failed, and nothing is cached until then. The query also
returns where the chunk's own object is now: its store may have been moved or migrated since the look-up.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

from cafcat.errors import (
    AccessDenied,
    CafcatError,
    Conflict,
    Corrupt,
    NotFound,
    StoreFailed,
    Unavailable,
    is_denied,
    shown_path,
)
from cafcat.model import Location
from cafcat.progress import Progress
from cafcat.stores.base import Store
from cafcat.stores.presence import elsewhere, why_not_there

if TYPE_CHECKING:
    from cafcat.reading.lookup import LocationCatalog

__all__ = ["FAILURES", "IF_ORIGINAL", "Replica", "ReplicaAttempts", "Replicas"]

FAILURES: Final = (AccessDenied, Conflict, Corrupt, NotFound, StoreFailed)
"""Errors of a store or a checksum after which another replica may still give the bytes."""

IF_ORIGINAL: Final = "with --from-source SRC if you have the original"
"""End of the hint of a read that found the right bytes nowhere."""

_AVOID_SECONDS: Final = 300.0
"""How long an object or a store that failed is tried only after the copies, in seconds. Each attempt may take a
server's full time limit; after this time the object or store may have been repaired."""
_OUTAGE_SECONDS: Final = 30.0
"""How long a store that was found to be out of reach is not checked again when other reads of it fail, in
seconds."""
_REFRESH_SECONDS: Final = 1.0
"""How old cached replica locations must be before they are queried again after all replicas failed, in seconds."""
_CACHED_CHUNKS: Final = 10_000
"""Largest number of chunks whose replica locations are cached."""

Result = TypeVar("Result")


class Replica(NamedTuple):
    """An object that has the bytes of a chunk: the chunk's own object, or a copy.

    Attributes:
        store: URL of the store.
        object_key: Key of the object in the store.
    """

    store: str
    object_key: str


class _Outage(NamedTuple):
    """The finding that a store is out of reach, or is not where its URL points.

    Attributes:
        since: When that was found, in seconds of the monotonic clock.
        message: Message of the error.
        hint: Hint of the error; None for no hint.
        has_copies: True if other stores have copies of some of the store's chunks.
    """

    since: float
    message: str
    hint: str | None
    has_copies: bool

    @property
    def is_recent(self) -> bool:
        """True if the store was checked in the last 30 seconds."""
        return self.since + _OUTAGE_SECONDS > time.monotonic()

    def as_error(self) -> Unavailable:
        """Return a new error with the message and hint of this outage."""
        return Unavailable(self.message, hint=self.hint)


class _CachedReplicas(NamedTuple):
    """The replicas of a chunk as the catalog returned them.

    Attributes:
        queried: When the catalog was queried, in seconds of the monotonic clock.
        replicas: The chunk's own object, then its copies.
    """

    queried: float
    replicas: list[Replica]


class Replicas:
    """Remembers objects and stores that failed, and finds the copies of their chunks.

    Threads may share this object.

    Attributes:
        has_failures: True if a failed object or store, or a damaged file, is remembered.
        are_of_snapshot: True if the locations come from a snapshot, which may be older than a prune or a repack.
    """

    def __init__(
        self,
        catalog: "LocationCatalog",
        stores: Mapping[str, Store],
        progress: Progress,
    ) -> None:
        """Create an object without failures. The catalog is not queried yet.

        Args:
            catalog: A database, or a snapshot of one.
            stores: Stores by their URL.
            progress: Receives a warning when copies are read: once for each chunk that failed, or once for its
                store if the whole store is out of reach.
        """
        self._catalog = catalog
        self._stores = stores
        self._progress = progress
        self._cached: dict[UUID, _CachedReplicas] = {}
        self._avoided_until: dict[Replica, float] = {}
        self._damaged_until: dict[tuple[UUID, int], float] = {}
        """When the copies of damaged files are no longer read first, by chunk and first byte of the file."""
        self._outages: dict[str, _Outage] = {}
        self._warned: set[str | UUID] = set()
        self._lacking: dict[UUID, int] = {}
        """Later changes that a restored backup lacked, by missing chunk (`lacking_changes`)."""
        self.has_failures = False
        self.are_of_snapshot = catalog.is_snapshot

    def instead_of(self, location: Location) -> Replica | None:
        """Return the copy to read in place of a chunk's own object that failed in the last five minutes.

        A warning is reported if there is a copy, and the store of the object is out of reach.

        Returns:
            The first other replica; None if the object did not fail, or there is no other replica.
        """
        if not self.is_avoided(location):
            return None
        others = self.others(location)
        if others and location.store in self._outages:
            self._warn_of_store(location.store)
        return others[0] if others else None

    def others(self, location: Location, *, refresh: bool = False) -> list[Replica]:
        """Return the replicas of a location's chunk other than the object that the location names.

        These are the chunk's own object, if it was moved since the file was looked up, and the copies. Without
        `refresh`, the catalog is queried for a chunk at most every five minutes.

        Args:
            location: Where the file was when it was looked up.
            refresh: True to query again if the last query is more than a second ago.
        """
        chunk = location.chunk
        cached = self._cached.get(chunk)
        oldest = time.monotonic() - (_REFRESH_SECONDS if refresh else _AVOID_SECONDS)
        if cached is None or cached.queried < oldest:
            if len(self._cached) >= _CACHED_CHUNKS:
                self._cached.clear()
            # `copies` is imported only if it is needed.
            replicas = [Replica(store, key) for store, key in self._catalog.copies.replicas_of(chunk)]
            cached = self._cached[chunk] = _CachedReplicas(time.monotonic(), replicas)
        own = _own_object(location)
        return [replica for replica in cached.replicas if replica != own]

    def is_avoided(self, location: Location) -> bool:
        """Return whether a chunk's own object or its store failed in the last five minutes: it is tried last.

        So is the object if the file proved to be damaged in it.
        """
        if not self.has_failures:
            return False
        outage = self._outages.get(location.store)
        store_until = 0.0 if outage is None else outage.since + _AVOID_SECONDS
        object_until = self._avoided_until.get(_own_object(location), 0.0)
        file_until = self._damaged_until.get((location.chunk, location.start_byte), 0.0)
        return max(store_until, object_until, file_until) > time.monotonic()

    def is_lost(self, location: Location) -> bool:
        """Return True if `error_of_lost` returns an error, and the store was checked up to 30 seconds ago."""
        outage = self._outages.get(location.store)
        return outage is not None and outage.is_recent and self.error_of_lost(location) is not None

    def error_of_lost(self, location: Location) -> StoreFailed | None:
        """Return the error of a file whose store is out of reach, and whose chunk has no copy as others have.

        Returns:
            The error of this file; None if the store is not known to be out of reach, or the chunk has a copy, or
            no chunk of the store has one. Then the error of the store concerns more than this file.
        """
        outage = self._outages.get(location.store)
        if outage is None or not outage.has_copies or self.others(location):
            return None
        message = f"its chunk has no copy, and its store is out of reach: {outage.message}"
        return StoreFailed(message, path=location.path, chunk=str(location.chunk), hint=outage.hint)

    def record_failure(self, location: Location, error: CafcatError) -> Unavailable | None:
        """Remember that a chunk's own object failed, so that other reads try it last for five minutes.

        Damage is not remembered, nor are I/O errors of a local store: other bytes of the object may be readable. If
        the object is missing, or a remote store failed, this also checks whether the whole store is out of reach.

        Args:
            location: The file that was read.
            error: Why reading the chunk's own object failed.

        Returns:
            The error for the whole store if it is out of reach, or not where its URL points; else None.
        """
        if isinstance(error, Corrupt):
            return None  # some bytes are wrong, others need not be
        store = self._stores[location.store]
        is_remote = store.is_remote
        if is_remote or isinstance(error, NotFound):
            self._avoided_until[_own_object(location)] = time.monotonic() + _AVOID_SECONDS
            self.has_failures = True
        if isinstance(error, NotFound) or (is_remote and isinstance(error, StoreFailed)):
            return self._check_store(store, location)
        return None

    def failure_of_copy(self, replica: Replica, error: CafcatError) -> str:
        """Return why a copy failed, for the hint of an error. If the object is missing, its store may be, too."""
        if isinstance(error, NotFound):
            with suppress(StoreFailed, AccessDenied):
                why = why_not_there(self._stores[replica.store], replica.object_key)
                if why is not None:
                    asks = "; is its disk mounted?" if replica.store.startswith("file:") else ""
                    return f"cannot find the store {replica.store}: {why}{asks}"
        return f"{replica.store}: {error.message}"

    def record_damage(self, location: Location) -> None:
        """Remember that a file proved to be damaged after its caller got most of it: copies are read first now."""
        if len(self._damaged_until) >= _CACHED_CHUNKS:
            self._damaged_until.clear()
        self._damaged_until[location.chunk, location.start_byte] = time.monotonic() + _AVOID_SECONDS
        self.has_failures = True

    def record_success(self, replica: Replica, location: Location, error: CafcatError | None) -> None:
        """Note that a replica gave the bytes of a file.

        If it is the chunk's own object, the failures of that object and its store are forgotten. If it is a copy,
        because the own object or its store failed, a warning is reported: once for each chunk, or once for the
        store if that is out of reach.

        Args:
            replica: The object that gave the bytes.
            location: The file that was read.
            error: Why the chunk's own object failed; None if it was not tried.
        """
        if replica == (location.store, location.object_key):
            self._avoided_until.pop(replica, None)
            self._outages.pop(location.store, None)
            self.has_failures = bool(self._avoided_until or self._damaged_until or self._outages)
        elif self._is_own_object(replica, location.chunk):
            pass  # its store was moved since the look-up: nothing is wrong
        elif location.store in self._outages:
            self._warn_of_store(location.store)
        elif error is not None:
            advice = error.hint if is_denied(error) else self.remedy(location)
            message = f"{_failure(location, error)}: read from its copy in {replica.store}; {advice}"
            self._warn_once(location.chunk, message)

    def remedy(self, location: Location, *, is_missing: bool = False) -> str:
        """Return the hint for damage in a chunk. The files of a snapshot may have been repaired since.

        Args:
            location: The file.
            is_missing: True if the chunk is missing: a restored backup may be older than a repack of the chunk.
        """
        repair = f"run cafcat repair --chunk {location.chunk}"
        if self.are_of_snapshot:
            return f"make a new snapshot; if the file is damaged there, too, {repair}"
        if is_missing and self._lacks_changes(location.chunk):
            lacking = "the restored backup lacks later changes, and the file may be in a newer chunk"
            return f"{lacking}: run cafcat rebuild with an empty catalog; else {repair}"
        return repair

    def _lacks_changes(self, chunk: UUID) -> bool:
        """Return True if the chunk is older than a restore from a backup that lacked later changes.

        The first call for a chunk costs a query.
        """
        try:
            if chunk not in self._lacking:
                self._lacking[chunk] = self._catalog.copies.lacking_changes(chunk)
            return self._lacking[chunk] > 0
        except CafcatError:  # the error of the chunk must not be replaced by one of the catalog
            return False

    def _is_own_object(self, replica: Replica, chunk: UUID) -> bool:
        cached = self._cached.get(chunk)
        return cached is not None and cached.replicas[:1] == [replica]

    def _warn_of_store(self, store: str) -> None:
        self._warn_once(store, f"{self._outages[store].message}: reading the copies of its chunks")

    def _warn_once(self, subject: str | UUID, message: str) -> None:
        if subject not in self._warned:
            self._warned.add(subject)
            self._progress.warn(message)

    def _check_store(self, store: Store, location: Location) -> Unavailable | None:
        url = location.store
        outage = self._outages.get(url)
        if outage is not None and outage.is_recent:
            return outage.as_error()
        try:
            error = _absence(store, location, is_of_snapshot=self.are_of_snapshot)
        except AccessDenied:
            return None  # the store answers; a reader need not be allowed to list it
        if error is None:
            self._outages.pop(url, None)
            return None
        has_copies = self._catalog.copies.has_copies_of(url)
        self._outages[url] = _Outage(time.monotonic(), error.message, error.hint, has_copies)
        self.has_failures = True
        return error


class ReplicaAttempts:
    """Attempts to read the same bytes of a chunk: from its own object, and if that fails from its copies."""

    def __init__(self, replicas: Replicas, location: Location, failed: CafcatError | None = None) -> None:
        """Prepare the attempts. With `failed`, the failure of the chunk's own object is recorded.

        Args:
            replicas: Remembers failed objects, and finds the copies.
            location: The file that is read.
            failed: Why the chunk's own object has failed already; then only the copies are tried. None: the own
                object was not tried yet.
        """
        self._replicas = replicas
        self._location = location
        self._own = _own_object(location)
        self._error: CafcatError | None = None
        self._unavailable: Unavailable | None = None
        self._of_copies: tuple[str, ...] = ()
        if failed is not None:
            self._record_failure(self._own, failed)

    def results(
        self, function: Callable[[Replica], Iterable[Result]], failures: tuple[type[CafcatError], ...] = FAILURES
    ) -> Iterator[Result]:
        """Yield the items that `function` returns for the first replica that does not fail.

        If a replica fails in the middle of the iteration, the items before stay yielded, and `function` is called
        with the next replica: it has to remember how far it came.

        Args:
            function: Reads from a replica. Called with one replica after the other.
            failures: Errors of `function` after which the next replica is tried. Other errors are raised.

        Raises:
            CafcatError: All replicas failed: the error that the method `error` returns.
        """
        for replica in self._in_order():
            try:
                yield from function(replica)
            except failures as error:
                self._record_failure(replica, error)
            else:
                if replica is not self._own or self._replicas.has_failures:
                    self._replicas.record_success(replica, self._location, self._error)
                return
        raise self.error()

    def first(
        self, function: Callable[[Replica], Result], failures: tuple[type[CafcatError], ...] = FAILURES
    ) -> Result:
        """Return what `function` returns for the first replica that does not fail.

        Args:
            function: Reads from a replica. Called with one replica after the other.
            failures: Errors of `function` after which the next replica is tried. Other errors are raised.

        Raises:
            CafcatError: All replicas failed: the error that the method `error` returns.
        """
        [result] = self.results(lambda replica: (function(replica),), failures)
        return result

    def _in_order(self) -> Iterator[Replica]:
        """Yield the replicas in the order in which they are tried.

        The chunk's own object comes first; or after the copies, if it failed in the last five minutes; or not at
        all, if its failure was given to the constructor. In the end come replicas that the catalog has now, and did
        not have when it was queried before.
        """
        has_failed = self._error is not None
        is_avoided = not has_failed and self._replicas.is_avoided(self._location)
        if not (has_failed or is_avoided):
            yield self._own
        others = self._replicas.others(self._location)
        yield from others
        if is_avoided:
            yield self._own
        for replica in self._replicas.others(self._location, refresh=True):
            if replica not in others:
                yield replica

    def _record_failure(self, replica: Replica, error: CafcatError) -> None:
        if replica == self._own:
            self._error = error
            self._unavailable = self._replicas.record_failure(self._location, error)
        else:
            self._of_copies += (self._replicas.failure_of_copy(replica, error),)

    @property
    def concerns_all(self) -> bool:
        """True if the error concerns more than one chunk: access is denied, or a store is out of reach.

        A Conflict counts as such an error, too. Valid after all replicas failed.
        """
        if self._unavailable is not None:
            return self._replicas.error_of_lost(self._location) is None
        return not isinstance(self._error, Corrupt | NotFound | StoreFailed)

    def error(self, location: Location | None = None) -> CafcatError:
        """Return the error of a file after all replicas failed.

        It is the error of the chunk's own object. If the object is missing, it is Corrupt, or NotFound for a
        snapshot, which may be older than a prune or repack of the chunk. If the store is out of reach,
        it is Unavailable, or StoreFailed if other chunks of the store have copies, but this one has none. Unless it
        is AccessDenied or Conflict, its hint has the errors of the copies.

        Args:
            location: Another file of the same read. None: the file that was given to the constructor.
        """
        assert self._error is not None  # noqa: S101 - called after all replicas failed, and the chunk's own object is one of them
        location = location or self._location
        error: CafcatError
        if self._unavailable is None:
            error = _error_of_file(location, self._error, is_of_snapshot=self._replicas.are_of_snapshot)
        else:
            error = self._replicas.error_of_lost(location) or self._unavailable
        hints = [f"its copies fail, too: {'; '.join(self._of_copies)}"] if self._of_copies else []
        if isinstance(error, Corrupt):
            is_missing = isinstance(self._error, NotFound)
            remedy = self._replicas.remedy(self._location, is_missing=is_missing)
            hints.append(f"{remedy}, {IF_ORIGINAL}")
        elif isinstance(error, NotFound):
            hints.append("if it was pruned or repacked since, make a new snapshot")
        if hints and error is not self._error:
            error.hint = "; ".join(hints)
        error.__cause__ = self._error if error is not self._error else None
        return error


def _own_object(location: Location) -> Replica:
    return Replica(location.store, location.object_key)


def _absence(store: Store, location: Location, *, is_of_snapshot: bool) -> Unavailable | None:
    """Return the error for a store that is out of reach, or not where its URL points; None if the store is present.

    Args:
        store: The store.
        location: A file whose chunk the store should have.
        is_of_snapshot: True if the location comes from a snapshot.

    Raises:
        AccessDenied: The store does not allow to list its objects.
    """
    try:
        why = why_not_there(store, location.object_key)
    except StoreFailed as error:
        return Unavailable(f"the store {location.store} is out of reach: {error.message}", hint=error.hint)
    return None if why is None else elsewhere(location.store, why, is_of_snapshot=is_of_snapshot)


def _failure(location: Location, error: CafcatError) -> str:
    chunk = f"chunk {location.chunk}"
    if isinstance(error, Corrupt):
        return f"{chunk} is damaged in {shown_path(location.path)}"
    if isinstance(error, NotFound):
        return f"{chunk} is missing ({error.message})"
    return f"{chunk} cannot be read ({error.message})"


def _error_of_file(location: Location, error: CafcatError, *, is_of_snapshot: bool) -> CafcatError:
    """Return the error of a store as an error of one file, with the path of the file.

    NotFound becomes Corrupt, except for a snapshot: the catalog has the file, so a missing object is damage and not
    a wrong name. Errors that are not NotFound, Corrupt or StoreFailed are returned unchanged.
    """
    if isinstance(error, StoreFailed):
        return StoreFailed(error.message, path=location.path, hint=error.hint)
    if isinstance(error, NotFound):
        message = f"the chunk is missing: {error.message}"
        kind = NotFound if is_of_snapshot else Corrupt
        return kind(message, path=location.path, chunk=str(location.chunk), byte=location.start_byte)
    if isinstance(error, Corrupt):
        return Corrupt(error.message, path=location.path, chunk=error.chunk, byte=error.byte)
    return error

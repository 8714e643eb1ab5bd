"""Lets a catalog join a store, which makes it one of the catalogs that write chunks and backups there.

A second catalog may join a store only if the user allows it. An operation joins the store of its new chunks, copies
or backup before it writes them. If the store has the catalog's marker, this costs one statement and one read.
docs/formats/marker.md has the rules for a store without the marker.
"""

import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Final
from uuid import UUID, uuid4

from cafcat.errors import (
    AccessDenied,
    CafcatError,
    Conflict,
    InvalidInput,
    Locked,
    NotFound,
    StoreFailed,
    Unsupported,
)
from cafcat.operations.chosen_stores import default_store
from cafcat.operations.reachable_stores import ReachableStores
from cafcat.session import Session
from cafcat.stores.base import ProbedStore, Store
from cafcat.stores.distinct import DistinctStores
from cafcat.stores.keys import BACKUP_PREFIX, JOURNAL_PREFIX
from cafcat.stores.marker import (
    Marker,
    catalogs_of,
    marker_key,
    read_marker,
    read_markers,
    remove_marker,
    write_marker,
)
from cafcat.writing.journal import parse_journal_key

__all__ = [
    "CHUNK_KEY",
    "describe_catalogs",
    "has_chunks",
    "has_joined",
    "join_store",
    "lost_catalog",
]

CHUNK_KEY: Final = re.compile(
    r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.[a-z0-9]{1,16}", re.ASCII
)
"""Keys of chunks. The group is the uuid."""

_LISTED_KEYS: Final = 10_000
"""Largest number of keys that are listed to find the chunks of a store without markers."""
_MOST_LOOKUPS: Final = 1_000
"""Of a store without markers, the largest number of chunks, and of journal records, to look up in the catalog."""


_CHOOSE_OR_MOVE: Final = (
    "this is the catalog of the embedded database, and the setting database_url names another database: choose "
    "another store (--store, or the setting store), or move the catalog there: docs/tasks/moving.md"
)


def has_joined(session: Session, store: Store) -> bool:
    """Return True if the store has the marker of this catalog, and is the store that the catalog has at this URL.

    This costs one statement and at most one read. Such a store needs no other check before it is written to.

    Raises:
        StoreFailed, AccessDenied: The store does not answer, or refuses the request.
        Corrupt: The marker is damaged.
        Unsupported: A later version of cafcat wrote the marker.
    """
    catalog, known = session.catalog.identities.of(store.url)
    marker = None if known is None else read_marker(store, catalog)
    return marker is not None and marker.store == known


def join_store(session: Session, store: Store, *, allow_shared: bool = False, dry_run: bool = False) -> None:
    """Make this catalog one of those that write into a store, or check that it is one.

    If the store lacks the marker of the catalog, and the catalog may write there, this writes the marker, and then
    enters the store into the catalog. Operations call this before they write chunks, copies or backups.

    Args:
        session: The session.
        store: The store that is going to be written to.
        allow_shared: True if the user allows several catalogs to write to the store.
        dry_run: Check only, write nothing.

    Raises:
        Conflict: The store has the marker of another catalog, or chunks or journal records that are not in this
            catalog; and `allow_shared` is false.
        Locked: Another catalog joined at the same moment, and `allow_shared` is false.
        Unavailable: The store does not answer, or is not the store that the catalog has at this URL.
        AccessDenied: The store refuses the request.
        Corrupt: The marker is damaged.
        Unsupported: A later version of cafcat wrote the marker.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    _Joining(session).join(store, allow_shared=allow_shared, dry_run=dry_run)


class _Joining:
    """State and steps of one call of `join_store`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._catalog = session.catalog
        self._stores = ReachableStores(session)

    def join(self, store: Store, *, allow_shared: bool, dry_run: bool) -> None:
        catalog, known = self._catalog.identities.of(store.url)
        marker = read_marker(store, catalog)
        if marker is None and dry_run:
            self._check(store, read_markers(store), allow_shared=allow_shared)
        elif marker is None:
            with self._catalog.journal.exclusively(store.url):
                # Another process of this catalog may have been faster.
                marker = read_marker(store, catalog) or self._write(
                    store, catalog, known, allow_shared=allow_shared
                )
        if marker is not None and marker.store != known:
            if known is not None and not allow_shared:
                self._stores.open(store.url)  # another disk may be mounted there now
            if not dry_run:
                if known is None:
                    self._enter(store)
                self._record(store, marker if known else self._with_own_identity(store, marker))

    def _enter(self, store: Store) -> None:
        """Enter a new store into the catalog, with the checks that its server has failed by now.

        This comes after the marker was written: a command that fails to write leaves no store in the catalog.
        """
        self._catalog.stores.register(store.url)
        for check in store.failed_checks if isinstance(store, ProbedStore) else ():
            self._catalog.verdicts.remember(store.url, check)

    def _database(self) -> str:
        """Return the URL of the database without user and password; of the embedded database, that of the home."""
        settings = self._session.settings
        return settings.home.as_uri() if settings.database_url is None else self._catalog.identities.database()

    def _with_own_identity(self, store: Store, marker: Marker) -> Marker:
        """Give a copy of another store of this catalog an identity of its own, and return its marker.

        The folder of a store was copied with its marker, and the catalog begins to use the copy, too. The journal
        names stores by their identities: with that of the original, a rebuild would not miss the copy.

        Returns:
            The new marker. The given marker if the catalog has no other store with this identity, both URLs mean
            one place, or several catalogs write there, whose markers have to agree.

        Raises:
            Unavailable: The other store is not at its URL any more; perhaps it was moved to this place.
        """
        original = self._catalog.identities.url_of(marker.store)
        if original in (None, store.url) or catalogs_of(store) != [marker.catalog]:
            return marker
        try:
            DistinctStores().check(store, self._stores.open(str(original)))
        except InvalidInput:
            return marker
        own = marker._replace(store=uuid4())
        with self._catalog.journal.exclusively(store.url):
            remove_marker(store, marker.catalog)
            write_marker(store, own)
        return own

    def _record(self, store: Store, marker: Marker) -> None:
        """Store the identity of a store, as in its marker, in the catalog.

        Unfinished uploads of the marker, left by a process that died, are removed.
        """
        with self._catalog.journal.exclusively(store.url):
            store.discard(marker_key(marker.catalog))
        self._catalog.identities.record_store(store.url, marker.store)

    def _write(self, store: Store, catalog: UUID, known: UUID | None, *, allow_shared: bool) -> Marker:
        others = read_markers(store)
        identities = [other.store for _, other in others if other is not None]
        marker = Marker(
            store=next(iter(identities), known or uuid4()),
            catalog=catalog,
            since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            has_unnamed=self._check(store, others, allow_shared=allow_shared),
            host=socket.gethostname(),
            database=self._database(),
        )
        write_marker(store, marker)
        if not allow_shared and (rivals := [other for other in catalogs_of(store) if other != catalog]):
            remove_marker(store, catalog)
            message = f"catalog {rivals[0]} began to write to {store.url} at the same moment"
            raise Locked(message, hint="run the command again")
        return marker

    def _check(self, store: Store, others: Sequence[tuple[UUID, Marker | None]], *, allow_shared: bool) -> bool:
        """Check that this catalog may join a store.

        Returns:
            True if chunks in the store that name no catalog belong to this catalog.

        Raises:
            Conflict: The store has the marker of another catalog, or chunks or journal records that are not in this
                catalog; and `allow_shared` is false.
            Unavailable: The store does not answer, or is not the store that the catalog has at this URL.
            AccessDenied: The store refuses the request.
        """
        if others and not allow_shared:
            message = f"the store {store.url} belongs to {describe_catalogs(others)}"
            if self._is_of_embedded_database(others):
                raise Conflict(message, hint=_CHOOSE_OR_MOVE)
            raise _refused(message, store)
        claimed = any(other is None or other.has_unnamed for _, other in others)
        if self._catalog.recovery.newest(store.url, 1):
            if not allow_shared:
                self._stores.open(store.url)  # raises Unavailable for a disk that is not mounted
            return not claimed
        if others:
            return False
        if (is_foreign := self._has_unknown(store)) and not allow_shared:
            raise _refused(f"the store {store.url} has chunks that are not in this catalog", store)
        return not is_foreign

    def _is_of_embedded_database(self, others: Sequence[tuple[UUID, Marker | None]]) -> bool:
        """Return True if the catalog that writes into a store is in the embedded database of this home.

        The user then chose another database for the same home, and did not lose the catalog.
        """
        settings = self._session.settings
        if settings.database_url is None:
            return False
        here = (socket.gethostname(), settings.home.as_uri())
        return any(marker is not None and (marker.host, marker.database) == here for _, marker in others)

    def _has_unknown(self, store: Store) -> bool:
        """Return True if a store has chunks or journal records without a row in the catalog.

        At most 1,000 journal records, and 1,000 chunks among the first 10,000 keys, are looked up. A chunk that the
        catalog has in another store counts as its own, because the user may have copied it by hand.
        """
        records = list(islice(_records(store), _MOST_LOOKUPS))
        if len(self._catalog.journal.find_existing(records)) < len(records):
            return True
        chunks = set(islice(_chunks(store), _MOST_LOOKUPS))
        return len(self._catalog.recovery.find_existing(list(chunks))) < len(chunks)


def has_chunks(store: Store) -> bool:
    """Return True if a store has journal records, or has a chunk among its first 10,000 keys.

    Raises:
        StoreFailed, AccessDenied: The store cannot be listed.
    """
    return next(_records(store), None) is not None or next(_chunks(store), None) is not None


def lost_catalog(session: Session) -> CafcatError | None:
    """Return an error with the remedies if the catalog is empty, but the store of the settings is in use.

    A store is in use if it has chunks, journal records, or the marker of another catalog. The store is read only if
    the catalog is empty.

    Returns:
        The error, which is not raised. None if the catalog is not empty, or the store is unused or cannot be read.

    Raises:
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    identities = session.catalog.identities
    if not identities.is_empty():
        return None
    with suppress(AccessDenied, NotFound, StoreFailed, InvalidInput, Unsupported):
        store = default_store(session)
        others = [found for found in read_markers(store) if found[0] != identities.of(store.url).catalog]
        if others:
            return _lost(f"belongs to {describe_catalogs(others)}", store)
        if has_chunks(store):
            return _lost("has chunks", store)
    return None


def describe_catalogs(catalogs: Iterable[tuple[UUID, Marker | None]]) -> str:
    """Return catalogs as text for messages: the uuid of each, and the time, host and database in its marker.

    The time is that of joining the store. Host and database are those at that time.

    Args:
        catalogs: At least one catalog: its uuid and its marker, as `read_markers` returns them. The text has only
            the uuid of a catalog whose marker is None.
    """
    found = list(catalogs)
    names = [
        f"{uuid}" if marker is None else f"{uuid} (since {marker.since}, {marker.host}, {marker.database})"
        for uuid, marker in found
    ]
    return f"catalog {names[0]}" if len(names) == 1 else f"{len(names)} other catalogs: {', '.join(names)}"


def _records(store: Store) -> Iterator[UUID]:
    keys = (parse_journal_key(found.key) for found in store.list(JOURNAL_PREFIX))
    return (key[1] for key in keys if key is not None)


def _chunks(store: Store) -> Iterator[UUID]:
    keys = (CHUNK_KEY.fullmatch(found.key) for found in islice(store.list(), _LISTED_KEYS))
    return (UUID(key[1]) for key in keys if key is not None)


def _lost(reason: str, store: Store) -> Conflict:
    return Conflict(f"the catalog is empty, but the store {store.url} {reason}", hint=_remedies(store))


def _refused(message: str, store: Store) -> Conflict:
    return Conflict(message, hint=f"{_remedies(store)}; to let two catalogs write there, use --join-store")


def _remedies(store: Store) -> str:
    import shlex

    url, restore = shlex.quote(store.url), "`cafcat restore --from STORE` to load a backup of another store"
    with suppress(AccessDenied, NotFound, StoreFailed):
        if next(iter(store.list(BACKUP_PREFIX)), None) is not None:
            restore = f"`cafcat restore --from {url}` to load a backup"
    return (
        f"if its catalog was lost, run `cafcat rebuild {url}`, with its other stores, too, or {restore}; "
        "to read its archives from this catalog, too, run `cafcat adopt`"
    )

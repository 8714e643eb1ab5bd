"""A catalog and the stores that it writes to. It never writes into a store of another catalog without being asked.

Every verb that writes chunks joins its store first. If the store has the catalog's marker, that costs one statement
and one read. docs/formats/marker.md has the rules for a store that has none.
"""

import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final
from uuid import UUID, uuid4

from cafcat.catalog.catalog import Catalog
from cafcat.errors import Conflict, Locked
from cafcat.operations.known_stores import KnownStores
from cafcat.session import Session
from cafcat.stores.base import Store
from cafcat.stores.keys import JOURNAL_PREFIX
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

__all__ = ["CHUNK_KEY", "Joining", "described", "has_chunks", "lost_catalog_of"]

CHUNK_KEY: Final = re.compile(
    r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.[a-z0-9]{1,16}", re.ASCII
)
"""Keys of chunks; the group is the uuid."""

_LOOKED_AT: Final = 10_000
"""Names of a store without markers that are looked at, to see whether it has chunks."""
_LOOKED_UP: Final = 1_000
"""Chunks and journal records of a store without markers that are looked up in the catalog."""


class Joining:
    """Makes a catalog one of those that write into a store."""

    def __init__(self, session: Session, database: str) -> None:
        """Args:
        session: the session of the catalog that joins.
        database: where the catalog is, a URL without user and password, for people.
        """
        self._catalog = session.catalog
        self._known = KnownStores(session)
        self._database = database

    def join(self, store: Store, *, asked: bool = False, dry_run: bool = False) -> None:
        """Write the catalog's marker into a store, if the catalog may write there and the marker is missing.

        Args:
            store: where chunks are going to be written.
            asked: the user wants two catalogs to write there.
            dry_run: check only, write nothing.

        Raises:
            Conflict: the store has chunks of another catalog, and the user did not ask to join.
            Locked: another catalog joined at the same moment.
            StoreFailed: the store does not answer, or is not the one that the catalog means.
            Corrupt: the marker is damaged.
        """
        catalog, known = self._catalog.identities.of(store.url)
        marker = read_marker(store, catalog)
        if marker is None and dry_run:
            self._check(store, read_markers(store), asked=asked)
        elif marker is None:
            with self._catalog.journal.exclusively(store.url):
                # Another process of this catalog may have been faster.
                marker = read_marker(store, catalog) or self._write(store, catalog, known, asked=asked)
        if marker is not None and marker.store != known:
            if known is not None and not asked:
                self._known.open(store.url)  # another disk may be mounted there than before
            if not dry_run:
                self._record(store, marker)

    def _record(self, store: Store, marker: Marker) -> None:
        """Note the identity of a store in the catalog, and remove what a process left that died while it wrote the
        marker."""
        with self._catalog.journal.exclusively(store.url):
            store.discard(marker_key(marker.catalog))
        self._catalog.identities.record_store(store.url, marker.store)

    def _write(self, store: Store, catalog: UUID, known: UUID | None, *, asked: bool) -> Marker:
        others = read_markers(store)
        identities = [other.store for _, other in others if other is not None]
        marker = Marker(
            store=next(iter(identities), known or uuid4()),
            catalog=catalog,
            since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            has_unnamed=self._check(store, others, asked=asked),
            host=socket.gethostname(),
            database=self._database,
        )
        write_marker(store, marker)
        if not asked and (rivals := [other for other in catalogs_of(store) if other != catalog]):
            remove_marker(store, catalog)
            message = f"catalog {rivals[0]} began to write into {store.url} at the same moment"
            raise Locked(message, hint="run the command again")
        return marker

    def _check(self, store: Store, others: Sequence[tuple[UUID, Marker | None]], *, asked: bool) -> bool:
        """Return whether chunks that name no catalog belong to this one. Raises Conflict, StoreFailed."""
        if others and not asked:
            raise _refused(f"the store {store.url} belongs to {described(others)}", store)
        claimed = any(other is None or other.has_unnamed for _, other in others)
        if self._catalog.recovery.newest(store.url, 1):
            if not asked:
                self._known.open(store.url)  # raises StoreFailed for a disk that is not mounted
            return not claimed
        if others:
            return False
        if (is_foreign := self._has_unknown(store)) and not asked:
            raise _refused(f"the store {store.url} has chunks that this catalog does not know", store)
        return not is_foreign

    def _has_unknown(self, store: Store) -> bool:
        """Return whether a store has chunks or journal records that are in no row of the catalog. A chunk that the
        catalog has in another store counts as its own: the user copied it by hand."""
        records = list(islice(_records(store), _LOOKED_UP))
        if len(self._catalog.journal.find_existing(records)) < len(records):
            return True
        chunks = set(islice(_chunks(store), _LOOKED_UP))
        return len(self._catalog.recovery.find_existing(list(chunks))) < len(chunks)


def has_chunks(store: Store) -> bool:
    """Return whether a store has journal records, or chunks among its first names. Raises StoreFailed,
    AccessDenied."""
    return next(_records(store), None) is not None or next(_chunks(store), None) is not None


def lost_catalog_of(catalog: Catalog, store: Store) -> Conflict | None:
    """Return an error that names the remedies if the catalog is empty and the store is not; else None. A store is
    looked at for an empty catalog only. Raises StoreFailed, AccessDenied."""
    if not catalog.identities.is_empty():
        return None
    own = catalog.identities.of(store.url).catalog
    others = [found for found in read_markers(store) if found[0] != own]
    if others:
        return _lost(f"the catalog is empty, but the store {store.url} belongs to {described(others)}", store)
    if has_chunks(store):
        return _lost(f"the catalog is empty, but the store {store.url} has chunks", store)
    return None


def described(catalogs: Iterable[tuple[UUID, Marker | None]]) -> str:
    """Return catalogs as text for messages: uuid, when each joined the store, and where it was then."""
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
    keys = (CHUNK_KEY.fullmatch(found.key) for found in islice(store.list(), _LOOKED_AT))
    return (UUID(key[1]) for key in keys if key is not None)


def _lost(message: str, store: Store) -> Conflict:
    return Conflict(message, hint=_remedies(store))


def _refused(message: str, store: Store) -> Conflict:
    return Conflict(message, hint=f"{_remedies(store)}; to have two catalogs write there: --join-store")


def _remedies(store: Store) -> str:
    import shlex

    url = shlex.quote(store.url)
    return (
        f"if its catalog was lost: `cafcat rebuild {url}`, or `cafcat restore --from {url}` for a backup; "
        "to read its archives from this catalog, too: `cafcat adopt`"
    )

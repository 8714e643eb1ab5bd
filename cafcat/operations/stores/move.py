"""Moves a store to another URL: checks that its objects have arrived, then changes the URL in one transaction."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cafcat.catalog.stores.stores import StoredObject
from cafcat.errors import NotFound, StoreFailed
from cafcat.operations.chosen_stores import named_store
from cafcat.operations.stores.rows import store_row
from cafcat.session import Session
from cafcat.stores.base import ObjectInfo, Store, has
from cafcat.stores.keys import JOURNAL_PREFIX, MARKER_PREFIX
from cafcat.stores.marker import read_marker
from cafcat.writing.journal import journal_key

__all__ = ["StoreMoveReport", "move_store"]

_SAMPLE_OBJECTS: Final = 100
_NAMED_OBJECTS: Final = 10


@dataclass(frozen=True, slots=True)
class StoreMoveReport:
    """Result of one `cafcat store move`.

    Attributes:
        old: The old URL.
        new: The new URL.
        objects: Number of chunks, copies and backups that the catalog has in the store.
        looked_at: Number of chunks, copies and backups that were checked at the new URL. Journal records are not
            counted.
        dry_run: True if nothing was changed.
        dropped_name: The name that the new URL had in the catalog, if the store keeps another name; else None.
    """

    old: str
    new: str
    objects: int
    looked_at: int
    dry_run: bool
    dropped_name: str | None = None


def move_store(
    session: Session, old: str, new: str, *, look_at_all: bool = False, dry_run: bool = False
) -> StoreMoveReport:
    """Enter the new URL of a store into the catalog. The user has moved the objects before.

    Before, this checks the marker of this catalog at the new URL, and a hundred random objects and as many journal
    records, or all of them.

    Args:
        session: The session.
        old: A store of the catalog: a name, a URL or a folder.
        new: The new location: a name, a URL or a folder.
        look_at_all: Check every object and every journal record.
        dry_run: Check only; change nothing.

    Raises:
        StoreFailed: Objects or the marker are missing at the new URL, or differ from the catalog. Nothing was
            changed.
        Locked: A process is writing to the store.
        Conflict: The catalog has chunks or copies at the new URL already, or a backup is being written there.
        NotFound: The catalog has no such store.
        InvalidInput: Both URLs are the same, or `new` is not a valid URL or path.
        Corrupt, Unsupported: The marker at the new URL is damaged, or a later version of cafcat wrote it; or no
            kind of store has the scheme of `new`.
        AccessDenied: The store at the new URL refuses the request.
    """
    row, target = store_row(session, old), named_store(session, new)
    return _Move(session).run(row.url, target, look_at_all=look_at_all, dry_run=dry_run)


class _Move:
    """State and steps of one `cafcat store move`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._catalog = session.catalog
        self._looked_at = 0
        self._records_looked_at = 0
        self._wrong: list[str] = []
        self._wrong_count = 0
        self._needed_wrong = False

    def run(self, old: str, new: Store, *, look_at_all: bool, dry_run: bool) -> StoreMoveReport:
        """Check that the objects have arrived at the new URL, and change the URL in the catalog.

        Args:
            old: The old URL.
            new: The store at the new URL.
            look_at_all: Check every object and journal record, instead of a hundred random ones of each.
            dry_run: Check only; change nothing.
        """
        stores = self._catalog.stores
        stores.check_movable(old, new.url)
        self._check_marker(old, new)
        if look_at_all:
            self._look_at_all(old, new)
        else:
            for expected in stores.sample(old, _SAMPLE_OBJECTS):
                self._compare(expected, _stat(new, expected.object_key))
        if not self._wrong_count:
            self._look_for_records(old, new, look_at_all=look_at_all)
        if self._wrong_count:
            raise self._failure(new)
        count = stores.count(old)
        dropped_name = None if dry_run else stores.move(old, new.url)
        return StoreMoveReport(old, new.url, count, self._looked_at, dry_run, dropped_name)

    def _check_marker(self, old: str, new: Store) -> None:
        """Raise StoreFailed if the marker at the new URL is missing, or is that of another store.

        Nothing is checked if the catalog has no identity of the store.
        """
        row = self._catalog.stores.find(old)
        if row is None or row.uuid is None:
            return
        marker = read_marker(new, self._catalog.identities.of(old).catalog)
        if marker is None or marker.store != row.uuid:
            why = "it has no marker of this catalog" if marker is None else f"its marker is of store {marker.store}"
            hint = f"nothing was changed: first move all objects there, also those below {MARKER_PREFIX}"
            raise StoreFailed(f"{new.url} is not the store {old}: {why}", hint=hint)

    def _look_at_all(self, old: str, new: Store) -> None:
        """Note each object of the store that is missing at the new URL, or has another size there.

        Further objects at the new URL are ignored. The listing and the catalog are both read in order of key.
        """
        listed = iter(new.list())
        found = next(listed, None)
        for expected in self._expected(old):
            while found is not None and found.key < expected.object_key:
                found = next(listed, None)
            is_there = found is not None and found.key == expected.object_key
            self._compare(expected, found if is_there else None)

    def _look_for_records(self, old: str, new: Store, *, look_at_all: bool) -> None:
        """Note which of a hundred random journal records of the store, or of all, are missing at the new URL.

        Without them the store would seem complete, but a rebuild from it would bring removed files back.
        """
        records = self._catalog.stores.written_records(old, None if look_at_all else _SAMPLE_OBJECTS)
        keys = [journal_key(sequence, uuid) for sequence, uuid in records]
        there = {found.key for found in new.list(JOURNAL_PREFIX)} if look_at_all else None
        for key in keys:
            self._session.checkpoint()
            self._records_looked_at += 1
            if not (has(new, key) if there is None else key in there):
                self._add_wrong(f"{key} is missing")

    def _expected(self, old: str) -> Iterator[StoredObject]:
        after = ""
        while page := self._catalog.stores.page(old, after=after):
            yield from page
            after = page[-1].object_key

    def _compare(self, expected: StoredObject, found: ObjectInfo | None) -> None:
        self._session.checkpoint()
        self._looked_at += 1
        if found is None:
            self._add_wrong(f"{expected.object_key} is missing", is_needed=expected.is_needed)
        elif expected.size_bytes not in (None, found.size_bytes):
            sizes = f"{found.size_bytes:,} bytes instead of {expected.size_bytes:,}"
            self._add_wrong(f"{expected.object_key} has {sizes}", is_needed=expected.is_needed)

    def _add_wrong(self, what: str, *, is_needed: bool = True) -> None:
        self._wrong_count += 1
        self._needed_wrong = self._needed_wrong or is_needed
        if len(self._wrong) < _NAMED_OBJECTS:
            self._wrong.append(what)

    def _failure(self, new: Store) -> StoreFailed:
        more = self._wrong_count - len(self._wrong)
        what = ", ".join(self._wrong) + (f" and {more:,} more" if more else "")
        hint = "nothing was changed: first move all objects there, or use `cafcat store migrate`"
        if not self._needed_wrong:
            hint = "nothing was changed: these chunks have no live file; cafcat prune --grace 0 forgets them"
        all_objects = self._looked_at + self._records_looked_at
        message = f"{self._wrong_count:,} of {all_objects:,} objects are missing or wrong in {new.url}: {what}"
        return StoreFailed(message, hint=hint)


def _stat(store: Store, key: str) -> ObjectInfo | None:
    try:
        return store.stat(key)
    except NotFound:
        return None

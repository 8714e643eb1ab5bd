"""Restores a backup into an empty catalog, in one transaction. The whole backup is checked before the commit."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final
from uuid import UUID

from cafcat.catalog.schema import HEAD_REVISION
from cafcat.catalog.transfer.dump import Loader, RetiredObject, StoredBackup
from cafcat.errors import CafcatError, CatalogOutdated, Corrupt, InvalidInput, NotFound, Unavailable, Unsupported
from cafcat.operations.audit import recorded
from cafcat.operations.backup.run import FoundBackup, backups_of, store_of_backups
from cafcat.operations.backup.tar import HEAD_NAME, MANIFEST_NAME, VERSION, Member, TarReader
from cafcat.operations.belonging import catalog_of_backup, catalogs_of_records
from cafcat.operations.chosen_stores import default_store
from cafcat.operations.restore.options import RestoreOptions
from cafcat.operations.restore.report import RestoreReport
from cafcat.session import Session
from cafcat.stores.base import Store, has
from cafcat.stores.keys import JOURNAL_PREFIX
from cafcat.stores.marker import catalogs_of, read_marker
from cafcat.writing.journal import journal_key, parse_journal_key

__all__ = ["run"]

_BATCH_OBJECTS: Final = 1000


@recorded
def run(session: Session, options: RestoreOptions) -> RestoreReport:
    """Fill an empty catalog from a backup, by default the newest one, in one transaction.

    Raises:
        NotFound: The store has no such backup, or several whose names begin with the given name.
        InvalidInput: No backup was named, and the store has backups of several catalogs; or the name of the store
            is not a valid URL or path.
        Conflict: The catalog is not empty, or the backup was replaced while it was read.
        Locked: Another process writes to the catalog.
        Corrupt: The backup is damaged.
        CatalogOutdated: The backup, or the database, has another schema revision.
        Unsupported, StoreFailed, AccessDenied, CatalogUnavailable: The backup or the database cannot be used.
    """
    store = store_of_backups(session, options.source)
    try:
        return _Restore(session).run(store, options.name)
    except Corrupt as error:
        lists = f"`cafcat backup --list --to {shlex.quote(store.url)}` lists the backups"
        error.hint = (
            error.hint or f"{lists}, `cafcat restore NAME` takes an older one, and `cafcat rebuild` needs none"
        )
        raise
    finally:
        session.progress.end()


class _Restore:
    """State and steps of one `cafcat restore`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._catalog = session.catalog
        self._progress = session.progress
        self._last_sequence = 0
        self._compared: list[str] = []
        self._unknown: list[str] = []

    def run(self, store: Store, name: str | None) -> RestoreReport:
        """Load a backup into the catalog, and commit it if the backup is undamaged.

        Args:
            store: The store with the backup.
            name: Key of the backup or the beginning of its key, with or without "backups/"; None for the newest
                backup.
        """
        backups = backups_of(store)
        backup = _chosen(store, backups, name)
        locator = store.locate(backup.object_key)
        reader = TarReader(iter(store.stream(backup.object_key, 0, backup.size_bytes)), locator)
        members = reader.members()
        head = _head(reader, members)
        with self._catalog.dump.load() as loader:
            self._progress.begin("restore", size_bytes=backup.size_bytes)
            _check_columns(reader, loader, head)
            rows = self._load(reader, members, loader, head)
            self._progress.begin("compare with the journals")
            catalog = loader.catalog()
            moved_from = self._follow(loader, store, catalog)
            # Each store has the journal records of removals, so a record can be in several journals.
            urls = self._stores(loader, store, catalog)
            lacking = set[tuple[int, UUID]]().union(*(self._lacking(loader, catalog, url) for url in urls))
            newer = sum(sequence > head["journal_id"] for sequence, _ in lacking)
            pruned = self._pruned(loader)
            others = loader.stores_of_backups().difference(urls)
            further = self._find_backups(loader, {store.url, *self._compared, *others}, backup, catalog)
            row = StoredBackup(
                0, store.url, backup.object_key, backup.size_bytes, head["journal_id"], backup.begun_at
            )
            newest = max([row, *further], key=lambda found: found.begun_at)
            loader.finish(row, further, self._last_sequence, len(lacking), pruned)
        return RestoreReport(
            store.url,
            backup.object_key,
            str(head["taken_at"]),
            head["journal_id"],
            rows,
            newer,
            len(lacking) - newer,
            len(pruned),
            tuple(self._compared),
            tuple(self._unknown),
            moved_from,
            newest.store if name is None and newest is not row else None,
        )

    def _follow(self, loader: Loader, store: Store, catalog: UUID) -> str | None:
        """Change the URL of the backup's store in the catalog if the store was moved after the backup.

        The marker in the store shows which store of the catalog it is. If this store is still at its old URL, too,
        nothing changes.

        Returns:
            The old URL; None if nothing was changed.
        """
        identity = _identity(store, catalog)
        old = None if identity is None else loader.store_with(identity)
        if old is None or old == store.url:
            return None
        try:
            is_copy = read_marker(self._session.stores[old], catalog) is not None
        except CafcatError:
            return None  # the old URL cannot be read: the user must run `cafcat store move`
        return old if not is_copy and loader.move_store(old, store.url) else None

    def _load(
        self,
        reader: TarReader,
        members: Iterator[tuple[str, int, Iterator[bytes]]],
        loader: Loader,
        head: dict[str, Any],
    ) -> dict[str, int]:
        """Load all rows of the backup into the catalog. Returns their number by table.

        The manifest comes last, and must agree with all members before it.
        """
        found: list[Member] = []
        rows = dict.fromkeys(head["tables"], 0)
        for name, size_bytes, content in members:
            if name == MANIFEST_NAME:
                _check(reader, reader.document(size_bytes, content), head, found)
                return rows
            table = name.partition("/")[0]
            if table not in rows:
                raise reader.corrupt(f"it has rows of {table}, which is not one of its tables")
            count = loader.load(table, head["tables"][table], reader.rows(content))
            found.append(Member(name, size_bytes, reader.crc32c, count))
            rows[table] += count
            self._progress.advance(count, size_bytes)
        raise reader.corrupt("it has no manifest")

    def _stores(self, loader: Loader, store: Store, catalog: UUID) -> list[str]:
        """Return the URLs of the stores whose journals may have later changes.

        These are the stores in the backup, and stores of the settings with the catalog's marker: the catalog may
        have begun to use one of these after the backup.
        """
        known = {store.url, *loader.stores()}
        named = {found.url for found in self._session.settings.stores.values()}
        further = {default_store(self._session).url, *named} - known
        return sorted(known | {url for url in further if self._may_have_marker(url, catalog)})

    def _may_have_marker(self, url: str, catalog: UUID) -> bool:
        """Return False if a store certainly has no marker of a catalog."""
        try:
            return read_marker(self._session.stores[url], catalog) is not None
        except CafcatError:
            return True

    def _pruned(self, loader: Loader) -> list[int]:
        """Return the chunks without live files (chunks.id) that `prune` removed after the backup.

        Otherwise `undelete` would bring back files without bytes. `prune` removes each object and then its journal
        record. If the store still has the record, the object is lost, or a `prune` was killed after its removal.
        """
        objects = loader.retired_objects()
        kept = {found.chunk_id for found in objects if not self._is_pruned(found)}
        return sorted({found.chunk_id for found in objects} - kept)

    def _is_pruned(self, found: RetiredObject) -> bool:
        """Return False for an object whose store has the object or its record, or cannot be read."""
        try:
            store = self._session.stores[found.store]
            keys = (found.object_key, journal_key(found.sequence, found.record))
            return found.store in self._compared and not any(has(store, key) for key in keys)
        except CafcatError:
            return False

    def _lacking(self, loader: Loader, catalog: UUID, url: str) -> set[tuple[int, UUID]]:
        """Return number and UUID of the journal records of this catalog in a store that the backup does not have.

        A store whose journal cannot be read, or that lacks the marker which it had, is noted for the report, with a
        warning; but not if it was given up before the backup.
        """
        lacking: set[tuple[int, UUID]] = set()
        try:
            store = self._session.stores[url]
            catalogs = set(catalogs_of(store))
            if catalog not in catalogs and loader.has_marker(url):
                raise Unavailable(
                    "the store lacks the marker of the catalog: its disk may not be mounted",
                    hint=f"if the store is lost for good: cafcat store rm {shlex.quote(url)} --lost",
                )
            is_shared = not catalogs <= {catalog}
            keys = (parse_journal_key(found.key) for found in store.list(JOURNAL_PREFIX))
            records = (record for record in keys if record is not None)
            while batch := list(islice(records, _BATCH_OBJECTS)):
                unknown = loader.unknown_records([uuid for _, uuid in batch])
                found = [record for record in batch if record[1] in unknown]
                lacking.update(_own(store, catalog, found) if is_shared else found)
                self._last_sequence = max(self._last_sequence, *(sequence for sequence, _ in batch))
            self._compared.append(url)
        except CafcatError as error:
            if loader.has_objects(url) or not loader.has_marker(url):
                self._progress.warn(f"the journal of {url} could not be read: {error}")
                self._unknown.append(url)
        return lacking

    def _find_backups(
        self, loader: Loader, urls: Iterable[str], restored: FoundBackup, catalog: UUID
    ) -> list[StoredBackup]:
        """Return the backups of this catalog that stores have, and the loaded rows lack, without the restored one.

        Also record which of the loaded ones were removed after the restored one was made. Stores that cannot be
        read, or have no backup, are left out.
        """
        added: list[FoundBackup] = []
        for url in sorted(urls):
            found: list[FoundBackup] = []
            with suppress(CafcatError):
                found = backups_of(self._session.stores[url])
            if found:
                unknown = loader.keep_backups(url, [each.object_key for each in found])
                added += [
                    each
                    for each in found
                    if each.object_key in unknown and each != restored and self._is_own(each, catalog)
                ]
        return [
            StoredBackup(0, each.store, each.object_key, each.size_bytes, None, each.begun_at) for each in added
        ]

    def _is_own(self, backup: FoundBackup, catalog: UUID) -> bool:
        """Return True if a backup is of this catalog; False if it cannot be read."""
        store = self._session.stores[backup.store]
        try:
            return catalog_of_backup(store, backup.object_key, backup.size_bytes) == catalog
        except CafcatError:
            return False


def _identity(store: Store, catalog: UUID) -> UUID | None:
    try:
        marker = read_marker(store, catalog)
    except (Corrupt, Unsupported):
        return None
    return None if marker is None else marker.store


def _own(store: Store, catalog: UUID, records: Sequence[tuple[int, UUID]]) -> Iterator[tuple[int, UUID]]:
    """Yield the journal records that a catalog wrote, and those of an unknown catalog."""
    for record, found in zip(records, catalogs_of_records(store, records), strict=True):
        if found in (None, catalog):
            yield record


def _chosen(store: Store, found: Sequence[FoundBackup], name: str | None) -> FoundBackup:
    if name is not None:
        beginning = name.removeprefix("backups/")
        found = [backup for backup in found if backup.object_key.removeprefix("backups/").startswith(beginning)]
        if len(found) > 1:
            hint = f"for example {found[0].object_key}"
            raise NotFound(f"{len(found)} backups in {store.url} begin with {beginning!r}: choose one", hint=hint)
    if name is None and len(catalogs_of(store)) > 1:
        _refuse_several(store, found)
    if not found:
        which = "no backup" if name is None else f"no backup {name}"
        hint = "--from names another store; `cafcat backup --list --to STORE` lists the backups in a store"
        if name is not None:
            hint += "; `cafcat extract` copies files to disk"
        raise NotFound(f"there is {which} in {store.url}", hint=hint)
    return found[-1]


def _refuse_several(store: Store, backups: Sequence[FoundBackup]) -> None:
    """Raise InvalidInput if the backups are of several catalogs; the message names the newest backup of each."""
    keys = {catalog_of_backup(store, backup.object_key, backup.size_bytes): backup.object_key for backup in backups}
    if len(keys) > 1:
        named = ", ".join(f"{key} of catalog {catalog or 'unknown'}" for catalog, key in keys.items())
        message = f"{store.url} has backups of {len(keys)} catalogs; the newest backup of each: {named}"
        raise InvalidInput(message, hint="choose one: cafcat restore NAME")


def _head(reader: TarReader, members: Iterator[tuple[str, int, Iterator[bytes]]]) -> dict[str, Any]:
    name, size_bytes, content = next(members, ("", 0, iter(())))
    if name != HEAD_NAME:
        raise reader.corrupt(f"its first member is not {HEAD_NAME}")
    head = reader.document(size_bytes, content)
    version = head.get("cafcat_backup")
    if version != VERSION:
        raise Unsupported(f"the backup has version {version!r}; this cafcat reads version {VERSION}")
    revision, written_by = head.get("schema_revision"), head.get("cafcat_version")
    if revision != HEAD_REVISION:
        hint = f"restore it with cafcat {written_by}"
        if str(revision) < HEAD_REVISION:
            hint += ", then run `cafcat db upgrade` with this one"
        raise CatalogOutdated(
            f"the backup has schema revision {revision}, this cafcat needs {HEAD_REVISION}", hint=hint
        )
    if not _is_head(head):
        raise reader.corrupt(f"{HEAD_NAME} lacks a field or has a wrong one")
    return head


def _is_head(head: dict[str, Any]) -> bool:
    tables = head.get("tables")
    return (
        type(head.get("journal_id")) is int
        and isinstance(head.get("taken_at"), str)
        and isinstance(tables, dict)
        and all(isinstance(columns, list) and columns for columns in tables.values())
        and all(isinstance(column, str) for columns in tables.values() for column in columns)
    )


def _check_columns(reader: TarReader, loader: Loader, head: dict[str, Any]) -> None:
    """Raise Corrupt if the backup has a column that the catalog does not have.

    The names in the backup become part of SQL statements, and this check admits only names of existing columns.
    """
    for table, columns in head["tables"].items():
        if missing := loader.missing_columns(table, columns):
            raise reader.corrupt(f"the catalog has no column {missing[0]} of {table}")


def _check(reader: TarReader, manifest: dict[str, Any], head: dict[str, Any], found: Sequence[Member]) -> None:
    expected = manifest.pop("members", None)
    if manifest != head:
        raise reader.corrupt("its manifest and its first member differ")
    if not isinstance(expected, list) or len(expected) != len(found):
        raise reader.corrupt("its manifest lists other members")
    for member, listed in zip(found, expected, strict=True):
        if listed != member._asdict():
            raise reader.corrupt(f"{member.name} differs from its manifest")

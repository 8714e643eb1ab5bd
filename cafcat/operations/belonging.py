"""Finds out which catalog wrote a backup or a journal record, in stores that several catalogs write to."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from cafcat.errors import Corrupt, NotFound, StoreFailed
from cafcat.operations.backup.tar import HEAD_NAME, TarReader
from cafcat.stores.base import Store
from cafcat.support.in_order import in_order
from cafcat.writing.journal import journal_key
from cafcat.writing.journal_reader import MAX_LINE_BYTES, read_head

__all__ = ["catalog_of_backup", "catalogs_of_records"]

_HEAD_BYTES: Final = 64 << 10
"""Number of bytes at the start of a backup that are read for its first member, which has about 6 KB."""


def catalog_of_backup(store: Store, key: str, size_bytes: int) -> UUID | None:
    """Return the identity of the catalog that wrote a backup, by one small read of the backup's first member.

    Returns:
        None for a damaged backup, or one that an earlier version of cafcat wrote.

    Raises:
        NotFound: The store does not have the backup.
        StoreFailed, AccessDenied: The store failed, or refused the request.
    """
    blocks = store.stream(key, 0, min(size_bytes, _HEAD_BYTES))
    reader = TarReader(iter(blocks), store.locate(key))
    try:
        name, size, content = next(reader.members(), ("", 0, iter(())))
        head = reader.document(size, content) if name == HEAD_NAME else {}
        return UUID(str(head.get("catalog")))
    except (Corrupt, ValueError):
        return None


def catalogs_of_records(store: Store, records: Iterable[tuple[int, UUID]]) -> Iterable[UUID | None]:
    """Return the identity of the catalog that wrote each journal record, in the order of the records.

    Only the first line of each record is read (at most 64 KiB). Several records are read at the same time.

    Args:
        store: The store.
        records: Sequence number and uuid of each record.

    Returns:
        Identities of catalogs; None for a record that is missing, damaged or unreadable, or that an earlier or
            later version of cafcat wrote.

    Raises:
        AccessDenied: The store refuses to give the records.
    """

    def catalog_of(record: tuple[int, UUID]) -> UUID | None:
        key = journal_key(*record)
        try:
            head = read_head(store, key, min(store.stat(key).size_bytes, MAX_LINE_BYTES))
        except (NotFound, Corrupt, StoreFailed):
            return None
        return None if head is None else head.catalog

    return in_order(catalog_of, records, most_in_flight=max(2, store.reads_in_flight))

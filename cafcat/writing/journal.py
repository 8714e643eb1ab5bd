"""Journal records as objects beside the chunks: facts that a rebuild needs and chunks do not contain.

Each record is one object `journal/<sequence>-<uuid>.jsonl` of JSON lines (docs/formats/journal.md): a head, a line
for each file, and a foot. The foot has the number of files and the CRC-32C of all bytes before it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from cafcat.catalog.history.journal import (
    MOST_UNWRITTEN,
    Journal,
    JournalFile,
    JournalOrigin,
    JournalRecord,
    JournalStore,
)
from cafcat.model import JournalKind
from cafcat.stores.base import Store
from cafcat.stores.keys import JOURNAL_PREFIX
from cafcat.stores.marker import catalogs_of, marker_key
from cafcat.stores.putting import put_once
from cafcat.support.checksums import crc32c

__all__ = ["journal_key", "parse_journal_key", "remove_journal", "sweep_journal", "write_journal"]

VERSION: Final = 2
"""Newest version of the format. Records without lines about origins are written as version 1."""
_BLOCK_BYTES: Final = 256 << 10
_KEY: Final = re.compile(
    re.escape(JOURNAL_PREFIX) + r"(\d{20})-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.jsonl",
    re.ASCII,
)
_MAX_SEQUENCE: Final = 10**15
"""Largest valid sequence number. No catalog has so many changes. A forged record with the largest number of
Postgres would leave no numbers for later records."""


def journal_key(sequence: int, uuid: UUID) -> str:
    """Return the key of a journal record's object, the same in every store. Keys ascend with `sequence`."""
    return f"{JOURNAL_PREFIX}{sequence:020d}-{uuid}.jsonl"


def parse_journal_key(key: str) -> tuple[int, UUID] | None:
    """Return sequence and uuid of the record with this key; None if it is not the key of a journal record."""
    found = _KEY.fullmatch(key)
    if found is None or not 0 < int(found[1]) <= _MAX_SEQUENCE:
        return None
    return int(found[1]), UUID(found[2])


def write_journal(journal: Journal, store: Store) -> None:
    """Write all journal records that a store still has to get.

    The catalog has a list of these records. Unfinished uploads of these records, which dead writers left, are
    removed. The advisory lock of the store's journal lets one process at a time do this.

    Raises:
        CatalogLocked: Another process wrote records for too long.
        StoreFailed, AccessDenied: The store failed.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    has_more = journal.has_unwritten(store.url)
    while has_more:
        with journal.exclusively(store.url):
            records = journal.unwritten([store.url])  # another process may have written some of them
            for record in records:
                key = journal_key(record.sequence, record.uuid)
                put_once(store, key, partial(_blocks, journal, record))
                journal.record_written(record.sequence, store.url)
        has_more = len(records) == MOST_UNWRITTEN


def sweep_journal(journal: Journal, store: Store, catalog: UUID) -> None:
    """Remove unfinished uploads of journal records, and of this catalog's marker, whose writers died.

    Uploads of another catalog stay, because its writer may be alive. Uploads of records that this catalog does not
    have are removed only if no other catalog has a marker in the store.

    Args:
        journal: The journal of this catalog.
        store: The store.
        catalog: Identity of this catalog.

    Raises:
        StoreFailed, AccessDenied: The store failed.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    own = marker_key(catalog)
    records = {
        key: parse_journal_key(key) for key in store.uploads() if key.startswith(JOURNAL_PREFIX) or key == own
    }
    if not records:
        return
    with journal.exclusively(store.url):  # each writer of this catalog holds this lock
        known = journal.find_existing([record[1] for record in records.values() if record is not None])
        alone = set(catalogs_of(store)) <= {catalog}
        for key, record in records.items():
            if alone or key == own or (record is not None and record[1] in known):
                store.discard(key)


def remove_journal(journal: Journal, store: Store, chunk_id: int) -> None:
    """Remove the journal record of a chunk's commit from a store, after the chunk itself was removed.

    The record is marked as written, so that it is not written there again. The lock of the journal excludes a
    process that writes this record at the same time.

    Raises:
        CatalogLocked: Another process wrote records for too long.
        StoreFailed, AccessDenied: The store failed.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    for record in journal.of_chunk(chunk_id):
        key = journal_key(record.sequence, record.uuid)
        with journal.exclusively(store.url):
            store.discard(key)
            store.delete(key)
            journal.record_written(record.sequence, store.url)


def _blocks(journal: Journal, record: JournalRecord) -> Iterator[bytes]:
    """Yield the bytes of a record's object in blocks of at least 256 KiB. The last one can be shorter or empty."""
    block = bytearray()
    is_move = record.kind is JournalKind.MOVE and record.chunk is not None
    origins = journal.origins(record.chunk.uuid) if is_move and record.chunk else ()
    for line in _encoded(record, origins, journal.files(record.sequence)):
        block += line
        if len(block) >= _BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    yield bytes(block)


def _encoded(
    record: JournalRecord, origins: Sequence[JournalOrigin], files: Iterable[JournalFile]
) -> Iterator[bytes]:
    """Yield the lines of a record's object: head, one line for each origin and for each file, and foot."""
    line = _line(_head(record, 2 if origins else 1))
    checksum, count = crc32c(line), 0
    yield line
    for origin in origins:
        run = None if origin.run is None else origin.run._asdict()
        line = _line({"files": origin.files, "run": run, "since": origin.since})
        checksum = crc32c(line, checksum)
        yield line
    for count, file in enumerate(files, 1):  # noqa: B007 - the last one counts the files
        line = _line({"path": file.path, "chunk": str(file.chunk), "start_byte": file.start_byte})
        checksum = crc32c(line, checksum)
        yield line
    yield _line({"files": count, "crc32c": checksum})


def _head(record: JournalRecord, version: int) -> dict[str, Any]:
    head: dict[str, Any] = {
        "cafcat_journal": version,
        "sequence": record.sequence,
        "kind": record.kind,
        "happened_at": record.happened_at,
    }
    if record.catalog is not None:
        head["catalog"] = str(record.catalog)
    if record.chunk is not None:
        head["chunk"] = record.chunk._asdict() | {"uuid": str(record.chunk.uuid)}
    if record.run is not None:
        head["run"] = record.run._asdict()
    if record.stores:
        head["stores"] = [_used_store(store) for store in record.stores]
    if record.damaged_retired:
        head["damaged_retired"] = [str(uuid) for uuid in record.damaged_retired]
    return head


def _used_store(store: JournalStore) -> dict[str, Any]:
    members = store._asdict() | {"uuid": str(store.uuid)}
    return {name: value for name, value in members.items() if value is not None}


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

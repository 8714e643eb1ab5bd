"""Checks of the invariant of docs/design.md from outside: by SQL and raw bytes, without cafcat's own code.

`look` reads catalog and stores, `problems` returns the contradictions between them as sentences. The catalog must
be at rest: no writer is alive, and recover has run.
"""

import base64
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import psycopg
from awscrt.checksums import crc64nvme
from google_crc32c import extend
from psycopg.rows import namedtuple_row

from tests.crash import archives
from tests.crash.archives import Entry
from tests.crash.places import Place

__all__ = ["Damaged", "Seen", "look", "problems"]

JOURNAL, BACKUPS, MARKERS, PROBE = "journal/", "backups/", "catalogs/", "cafcat-probe-"
KEPT = ("committed", "retired")
LOGS = "clp-s"
Spot = tuple[int, str, int, int]
Damaged = frozenset[tuple[str, str]]
"""Objects that were damaged on purpose: URL of the store, and key."""
"""A file in a chunk: chunks.id, path, start and end byte."""


@dataclass
class Seen:
    """The contents of catalog and stores.

    Attributes:
        tables: rows by table.
        objects: objects by URL of the store.
        uploads: keys of unfinished uploads by URL of the store.
        live: content of each live path; for archives of logs the log files in place of the sections, whose names
            differ from run to run.
        outside: URL of the place with third-party archives.
    """

    tables: dict[str, list[Any]]
    objects: dict[str, dict[str, bytes]]
    uploads: dict[str, list[str]]
    live: dict[str, bytes] = field(default_factory=dict)
    outside: str = ""

    def object_of(self, row: Any) -> bytes | None:
        return self.objects.get(row.store, {}).get(row.object_key)


def crc32c(data: bytes) -> int:
    return int(extend(0, data))


TABLES = {
    "chunks": "SELECT * FROM chunks ORDER BY id",
    "file_locations": "SELECT * FROM file_locations ORDER BY file_path",
    "retired_locations": "SELECT * FROM retired_locations ORDER BY id",
    "journal": "SELECT * FROM journal ORDER BY id",
    "journal_files": "SELECT * FROM journal_files ORDER BY journal_id, file_path",
    "chunk_copies": "SELECT * FROM chunk_copies ORDER BY id",
    "backups": "SELECT * FROM backups ORDER BY id",
    "ingestion_units": "SELECT * FROM ingestion_units ORDER BY chunk_id, number",
    "folders": "SELECT depth, folder_path, sum(files) AS files, sum(bytes) AS bytes FROM (SELECT depth, "
    "folder_path, files, bytes FROM folder_totals "
    "UNION ALL SELECT depth, folder_path, files, bytes FROM folder_deltas) AS t "
    "GROUP BY 1, 2 HAVING sum(files) <> 0 OR sum(bytes) <> 0",
    "catalog_identity": "SELECT * FROM catalog_identity",
}


def look(database_url: str, places: Sequence[Place], outside: str = "") -> Seen:
    with psycopg.connect(database_url, row_factory=namedtuple_row) as connection:
        tables = {name: connection.execute(query.encode()).fetchall() for name, query in TABLES.items()}
    objects = {place.url: place.objects() for place in places}
    seen = Seen(tables, objects, {place.url: place.uploads() for place in places}, outside=outside)
    chunks = {row.id: row for row in tables["chunks"]}
    for row in tables["file_locations"]:
        chunk = chunks.get(row.caf_file_id)
        data = seen.object_of(chunk) if chunk is not None else None
        if data is None or not _is_own_log(chunk):
            seen.live[row.file_path] = b"" if data is None else _content(chunk, data, row)
    for row in tables["ingestion_units"]:
        if _is_own_log(chunks[row.chunk_id]) and chunks[row.chunk_id].state == "committed":
            found = (row.end_record - row.first_record, row.source_bytes, row.modified_at)
            seen.live[f"log file {row.file_name}"] = repr(found).encode()
    return seen


def _is_own_log(chunk: Any) -> bool:
    return chunk.format == LOGS and chunk.adopted_prefix is None


def problems(seen: Seen, damaged: Damaged = frozenset()) -> list[str]:
    """Return all problems. damaged: objects that were damaged on purpose, and are not read."""
    checks: list[Callable[[Seen, Damaged], Iterator[str]]] = [
        _states,
        _locations,
        _chunks,
        _entries_once,
        _log_files,
        _counters,
        _folder_totals,
        _nothing_else,
        _markers,
        _journal,
        _removals_known,
        _replayed,
    ]
    return [problem for check in checks for problem in check(seen, damaged)]


def _states(seen: Seen, _damaged: Damaged) -> Iterator[str]:
    """Check that no row is in state `writing`, and that abandoned and deleted objects were removed."""
    for table in ("chunks", "chunk_copies", "backups"):
        for row in seen.tables[table]:
            if row.state == "writing":
                yield f"{table} {row.id} is still writing"
            if row.state in ("abandoned", "deleted") and row.deleted_at is None:
                yield f"{table} {row.id} is {row.state}, and has no deleted_at"
    for row in seen.tables["chunks"]:
        if row.state in KEPT and (row.state == "retired") != (row.live_file_count == 0):
            yield f"chunk {row.id} is {row.state} with {row.live_file_count} live files"
        if (row.state == "retired") and row.retired_at is None:
            yield f"chunk {row.id} is retired and has no retired_at"


def _locations(seen: Seen, damaged: Damaged) -> Iterator[str]:
    """Check that every row of file_locations points to bytes of a committed chunk with that checksum."""
    chunks = {row.id: row for row in seen.tables["chunks"]}
    for row in seen.tables["file_locations"]:
        chunk = chunks.get(row.caf_file_id)
        if chunk is None or chunk.state != "committed":
            yield f"{row.file_path} points to chunk {row.caf_file_id}, which is {chunk and chunk.state}"
            continue
        data = seen.object_of(chunk)
        if data is None:
            yield f"{row.file_path} points to {chunk.object_key}, which is missing"
        elif (chunk.store, chunk.object_key) not in damaged and (
            crc32c(_content(chunk, data, row)) != row.crc32c or row.end_byte > chunk.index_start_byte
        ):
            yield f"{row.file_path}: its bytes in {chunk.object_key} have another checksum"


def _content(chunk: Any, data: bytes, row: Any) -> bytes:
    """Return the content of a file, or a placeholder if it cannot be decoded."""
    try:
        return archives.content(chunk.format, data, row.start_byte, row.end_byte, row.decoding)
    except (ValueError, struct.error, IndexError):
        return b"it cannot be decoded"


def _chunks(seen: Seen, damaged: Damaged) -> Iterator[str]:
    """Check that every kept chunk and every copy has an object as its row describes it."""
    chunks = {row.id: row for row in seen.tables["chunks"]}
    rows = [(row, row) for row in chunks.values() if row.state in KEPT]
    rows += [(row, chunks[row.chunk_id]) for row in seen.tables["chunk_copies"] if row.state == "committed"]
    for place, chunk in rows:
        data, name = seen.object_of(place), f"{place.store} {place.object_key}"
        if data is None:
            yield f"{name} is missing"
        elif (place.store, place.object_key) not in damaged:
            yield from (f"{name}: {problem}" for problem in _object_problems(chunk, data))


def _object_problems(chunk: Any, data: bytes) -> Iterator[str]:
    start, end, files = archives.parse(chunk.format, data)
    if chunk.adopted_prefix is not None:  # the position of its index does not matter
        start = end = len(data)
    if (chunk.size_bytes, chunk.index_start_byte, chunk.index_end_byte) != (len(data), start, end):
        yield "its sizes are not those of its row"
    if chunk.file_count != len(files):
        yield f"it has {len(files)} files, its row {chunk.file_count}"
    if chunk.crc64nvme not in (None, base64.b64encode(crc64nvme(data).to_bytes(8)).decode()):
        yield "its CRC-64/NVME is not that of its row"
    if chunk.index_crc32c not in (None, crc32c(data[start:])):
        yield "the checksum of its index is not that of its row"
    for file in files:
        is_verbatim = chunk.format in ("caf", LOGS) and file.crc32c is not None
        if is_verbatim and crc32c(data[file.start : file.end]) != file.crc32c:
            yield f"{file.path} has another checksum than in its index"


def _entries(seen: Seen, chunk: Any, damaged: Damaged) -> list[Entry] | None:
    """Return the entries of a chunk with their paths in the catalog; None if the object is missing or damaged."""
    data = seen.object_of(chunk)
    if data is None or (chunk.store, chunk.object_key) in damaged:
        return None
    prefix = chunk.adopted_prefix or (chunk.object_key if _is_own_log(chunk) else "")
    return [
        replace(entry, path=prefix + entry.path, crc32c=_checksum(entry, data))
        for entry in archives.parse(chunk.format, data)[2]
    ]


def _checksum(entry: Entry, data: bytes) -> int:
    return crc32c(data[entry.start : entry.end]) if entry.crc32c is None else entry.crc32c


def _entries_once(seen: Seen, damaged: Damaged) -> Iterator[str]:
    """Check that every entry of a kept chunk is live or retired exactly once, and that no other file is."""
    rows = seen.tables["file_locations"] + seen.tables["retired_locations"]
    for chunk in seen.tables["chunks"]:
        of_rows = Counter(
            (row.file_path, row.start_byte, row.end_byte, row.crc32c) for row in rows if row.caf_file_id == chunk.id
        )
        if chunk.state in ("writing", "abandoned") and of_rows:
            yield f"chunk {chunk.id} is {chunk.state} and has {of_rows.total()} files"
        entries = _entries(seen, chunk, damaged) if chunk.state in KEPT else None
        if entries is None:
            continue
        of_index = Counter((entry.path, entry.start, entry.end, entry.crc32c) for entry in entries)
        for path, *_ in of_index - of_rows:
            yield f"{path} of chunk {chunk.id} is neither live nor retired"
        for path, *_ in of_rows - of_index:
            yield f"{path} of chunk {chunk.id} is live or retired more often than it is in its index"


def _log_files(seen: Seen, _damaged: Damaged) -> Iterator[str]:
    """Check that the catalog has every log file of each kept archive as the archive lists it, and no other."""
    for chunk in seen.tables["chunks"]:
        data = seen.object_of(chunk) if chunk.format == LOGS and chunk.state in KEPT else None
        expected = [] if data is None else archives.units(data)
        found = [
            (row.number, row.file_name, row.first_record, row.end_record, row.source_bytes)
            for row in seen.tables["ingestion_units"]
            if row.chunk_id == chunk.id
        ]
        if found != expected:
            yield f"chunk {chunk.id} has the log files {found}, its archive {expected}"


def _counters(seen: Seen, _damaged: Damaged) -> Iterator[str]:
    files, sizes = Counter[int](), Counter[int]()
    for row in seen.tables["file_locations"]:
        files[row.caf_file_id] += 1
        size = row.end_byte - row.start_byte if row.content_bytes is None else row.content_bytes
        sizes[row.caf_file_id] += size
    for chunk in seen.tables["chunks"]:
        counted = (files[chunk.id], sizes[chunk.id])
        if (chunk.live_file_count, chunk.live_bytes) != counted and (chunk.state in KEPT or any(counted)):
            found = (chunk.live_file_count, chunk.live_bytes)
            yield f"chunk {chunk.id} counts {found} live files and bytes, and has {counted}"


def _folder_totals(seen: Seen, _damaged: Damaged) -> Iterator[str]:
    """Check that the totals of folders equal a recount of the files."""
    files, sizes = Counter[str](), Counter[str]()
    for row in seen.tables["file_locations"]:
        parts = row.file_path.split("/")[:-1]
        for depth in range(len(parts) + 1):
            folder = "".join(f"{part}/" for part in parts[:depth])
            files[folder] += 1
            sizes[folder] += row.end_byte - row.start_byte if row.content_bytes is None else row.content_bytes
    counted = {folder: (folder.count("/"), count, sizes[folder]) for folder, count in files.items()}
    totals = {row.folder_path: (row.depth, int(row.files), int(row.bytes)) for row in seen.tables["folders"]}
    for folder in sorted(counted.keys() | totals.keys()):
        if counted.get(folder) != totals.get(folder):
            yield f"folder {folder!r} has the total {totals.get(folder)}, and its files {counted.get(folder)}"


def _nothing_else(seen: Seen, _damaged: Damaged) -> Iterator[str]:
    """Check that a store has the objects that rows name, and nothing else.

    A killed process may leave an empty probe: the next `recover` of a store in use removes the probe
    (test_store_names.py).
    """
    expected: dict[str, set[str]] = {url: set() for url in seen.objects}
    for table, states in {"chunks": KEPT, "chunk_copies": ("committed",), "backups": ("committed",)}.items():
        for row in seen.tables[table]:
            if row.state in states:
                expected.setdefault(row.store, set()).add(row.object_key)
                if seen.object_of(row) is None:
                    yield f"{table} {row.id}: no object {row.object_key} in {row.store}"
    for url, objects in seen.objects.items():
        for key in objects.keys() - expected[url]:
            if not key.startswith((JOURNAL, MARKERS, PROBE)) and url != seen.outside:
                yield f"{url} has {key}, which no row names"
        own = expected[url] and url != seen.outside
        for key in seen.uploads[url]:
            # Before a store has a chunk, no row leads recover to it: the next ingest removes the upload.
            if (own or not key.startswith(MARKERS)) and not key.startswith(PROBE):
                yield f"{url} has an upload of {key}"


def _markers(seen: Seen, _damaged: Damaged) -> Iterator[str]:
    """Check that a store with objects has the marker of this catalog, and no other marker."""
    [identity] = seen.tables["catalog_identity"]
    marker = f"{MARKERS}{identity.uuid}.json"
    rows = [row for row in seen.tables["chunks"] if row.state in KEPT and row.adopted_prefix is None]
    rows += [row for table in ("chunk_copies", "backups") for row in seen.tables[table] if row.state == "committed"]
    for url, objects in seen.objects.items():
        found = {key: data for key, data in objects.items() if key.startswith(MARKERS)}
        for key in found.keys() - {marker}:
            yield f"{url} has {key}, the marker of another catalog"
        if marker not in found and any(row.store == url for row in rows):
            yield f"{url} has no marker of its catalog"
        if marker in found:
            document = json.loads(found[marker])
            if (len(found[marker]), document["catalog"]) != (1024, str(identity.uuid)):
                yield f"{url} {marker}: it is not the marker of this catalog"


def _journal(seen: Seen, _damaged: Damaged) -> Iterator[str]:
    """Check that every journal record is in its stores as its row describes it, and that no other record is."""
    chunks = {row.id: row for row in seen.tables["chunks"]}
    records = {f"{JOURNAL}{row.id:020d}-{row.uuid}.jsonl": row for row in seen.tables["journal"]}
    for key, row in records.items():
        chunk = chunks.get(row.chunk_id)
        if row.unwritten:
            yield f"journal {row.id} is not written to {row.unwritten}"
        holders = [url for url, objects in seen.objects.items() if key in objects]
        if chunk is not None and chunk.state in KEPT and chunk.store not in holders:
            yield f"journal {row.id} of chunk {chunk.id} is not in {chunk.store}"
        if chunk is not None and chunk.state not in KEPT and chunk.store in holders:
            yield f"journal {row.id} of chunk {chunk.id}, which is {chunk.state}, is still in {chunk.store}"
        if chunk is None and not holders:
            yield f"journal {row.id} ({row.kind}) is in no store"
        for url in holders:
            yield from (f"{url} {key}: {text}" for text in _record_problems(seen.objects[url][key], row, chunk))
    for url, objects in seen.objects.items():
        for key in objects:
            if key.startswith(JOURNAL) and key not in records:
                yield f"{url} has {key}, which no row names"
    for row in seen.tables["journal_files"]:
        yield f"journal_files has {row.file_path} of journal {row.journal_id}, which every store has"


def _record_problems(data: bytes, row: Any, chunk: Any) -> Iterator[str]:
    head, files = parse_record(data)
    version = 2 if row.kind == "move" else 1
    if (head["cafcat_journal"], head["sequence"], head["kind"]) != (version, row.id, row.kind):
        yield "its head is not that of its row"
    if chunk is not None:
        names = ("object_key", "size_bytes", "index_start_byte", "file_count", "crc64nvme", "index_crc32c")
        if any(head.get("chunk", {}).get(name) != getattr(chunk, name) for name in names):
            yield "its description of the chunk differs from the chunk's row"
        if any(UUID(file["chunk"]) != chunk.uuid for file in files):
            yield "it names files of other chunks"
    elif not files and row.kind != "remove":  # a migration ends with a removal of no file
        yield "it names no file"


def parse_record(data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return head and files of a journal record. Raises ValueError if the record is incomplete."""
    *before, foot = data.splitlines(keepends=True)
    head, *documents = [json.loads(line) for line in before]
    files = [document for document in documents if "path" in document]
    if json.loads(foot) != {"files": len(files), "crc32c": crc32c(b"".join(before))}:
        raise ValueError("the foot of a journal record is wrong")
    origins = sum(document["files"] for document in documents if "path" not in document)
    if head["kind"] == "move" and origins != head["chunk"]["file_count"]:
        raise ValueError("the record of a move does not have the origins of all files")
    return head, files


def _removals_known(seen: Seen, _damaged: Damaged) -> Iterator[str]:
    """Check that every store has the records of all removals and restores since its first chunk."""
    commits = {row.chunk_id: row.id for row in seen.tables["journal"] if row.chunk_id is not None}
    for url, objects in seen.objects.items():
        first = min((commits[row.id] for row in _kept_in(seen, url)), default=None)
        for row in seen.tables["journal"]:
            key = f"{JOURNAL}{row.id:020d}-{row.uuid}.jsonl"
            if first is not None and row.chunk_id is None and row.id > first and key not in objects:
                yield f"{url} has chunks, and does not have journal {row.id} ({row.kind})"


def _kept_in(seen: Seen, url: str) -> list[Any]:
    """Return cafcat's own chunks that a store has as original or copy."""
    copies = seen.tables["chunk_copies"]
    copied = {row.chunk_id for row in copies if row.store == url and row.state == "committed"}
    return [row for row in _own(seen).values() if row.store == url or row.id in copied]


def _own(seen: Seen) -> dict[UUID, Any]:
    """Return the kept chunks, without third-party archives, by uuid."""
    rows = seen.tables["chunks"]
    return {row.uuid: row for row in rows if row.state in KEPT and row.adopted_prefix is None}


def _replayed(seen: Seen, damaged: Damaged) -> Iterator[str]:
    """Replay the journal of each store that has all chunks, and compare the result with file_locations.

    A path that a third-party archive has now is left out: the journal describes its earlier state.
    """
    chunks = _own(seen)
    if any(row.object_key in damaged for row in chunks.values()):
        return
    ids = {row.id for row in chunks.values()}
    live = {(row.caf_file_id, row.file_path, row.start_byte, row.end_byte) for row in seen.tables["file_locations"]}
    rows = {spot for spot in live if spot[0] in ids}
    adopted = {path for _, path, *_ in live - rows}
    for url in seen.objects:
        if len(_kept_in(seen, url)) < len(chunks) or not chunks:
            continue
        events: dict[str, tuple[int, Spot | None]] = {}
        for sequence, path, spot in _events(seen, url, chunks):
            if sequence >= events.get(path, (-1, None))[0]:
                events[path] = (sequence, spot)
        replayed = {spot for _, spot in events.values() if spot is not None}
        for _, path, *_ in sorted(rows - replayed):
            yield f"{path} is not at its location in the journal of {url}"
        for _, path, *_ in sorted(spot for spot in replayed - rows if spot[1] not in adopted):
            yield f"{path} has a location in the journal of {url} that the catalog does not have"


def _events(seen: Seen, url: str, chunks: Mapping[UUID, Any]) -> Iterator[tuple[int, str, Spot | None]]:
    """Yield sequence number, path and new location of each change in the journal of a store."""
    for key, data in seen.objects[url].items():
        if not key.startswith(JOURNAL):
            continue
        head, files = parse_record(data)
        named = {(file["path"], UUID(file["chunk"]), file["start_byte"]) for file in files}
        if head["kind"] == "remove":
            yield from ((head["sequence"], path, None) for path, *_ in named)
        elif head["kind"] == "restore":
            for path, uuid, start in named:
                spots = [spot for spot in _spots(seen, chunks.get(uuid)) if spot[1:3] == (path, start)]
                yield head["sequence"], path, spots[0] if spots else None
        else:
            chunk = chunks.get(UUID(head["chunk"]["uuid"]))
            for spot in _spots(seen, chunk):
                if (spot[1], chunk.uuid, spot[2]) not in named:
                    yield head["sequence"], spot[1], spot


def _spots(seen: Seen, chunk: Any) -> list[Spot]:
    entries = _entries(seen, chunk, frozenset()) if chunk is not None else None
    return [(chunk.id, entry.path, entry.start, entry.end) for entry in entries or ()]

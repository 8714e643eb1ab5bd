"""The invariant of docs/design.md, looked at from outside: SQL, raw bytes, and nothing of cafcat's own code.

`look` gathers what catalog and stores say, `problems` what contradicts what, in words. The catalog is at rest: no
writer is alive, recover has run.
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

__all__ = ["Seen", "look", "problems"]

JOURNAL, BACKUPS, MARKERS, PROBE = "journal/", "backups/", "catalogs/", "cafcat-probe-"
KEPT = ("committed", "retired")
LOGS = "clp-s"
Spot = tuple[int, str, int, int]
"""A file in a chunk: chunks.id, path, start and end byte."""


@dataclass
class Seen:
    """`tables`: rows by table; `objects` and `uploads` by URL of the store; `live`: what each path is now, and each
    log file, in place of the sections of archives of logs, whose names are others in each run; `outside`: URL of
    the place that is somebody else's."""

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


def problems(seen: Seen, damaged: frozenset[str] = frozenset()) -> list[str]:
    """`damaged`: keys of objects whose bytes were spoilt on purpose; what they contain is not looked at."""
    checks: list[Callable[[Seen, frozenset[str]], Iterator[str]]] = [
        _states,
        _locations,
        _chunks,
        _entries_once,
        _log_files,
        _counters,
        _nothing_else,
        _markers,
        _journal,
        _told,
        _replayed,
    ]
    return [problem for check in checks for problem in check(seen, damaged)]


def _states(seen: Seen, _damaged: frozenset[str]) -> Iterator[str]:
    """Nobody writes any more, and what was given up is gone."""
    for table in ("chunks", "chunk_copies", "backups"):
        for row in seen.tables[table]:
            if row.state == "writing":
                yield f"{table} {row.id} is still writing"
            if row.state in ("abandoned", "deleted") and row.deleted_at is None:
                yield f"{table} {row.id} is {row.state}, and nobody noted that it was removed"
    for row in seen.tables["chunks"]:
        if row.state in KEPT and (row.state == "retired") != (row.live_file_count == 0):
            yield f"chunk {row.id} is {row.state} with {row.live_file_count} live files"
        if (row.state == "retired") and row.retired_at is None:
            yield f"chunk {row.id} is retired since never"


def _locations(seen: Seen, damaged: frozenset[str]) -> Iterator[str]:
    """Every row of file_locations points to durable bytes of a committed chunk with that checksum."""
    chunks = {row.id: row for row in seen.tables["chunks"]}
    for row in seen.tables["file_locations"]:
        chunk = chunks.get(row.caf_file_id)
        if chunk is None or chunk.state != "committed":
            yield f"{row.file_path} points to chunk {row.caf_file_id}, which is {chunk and chunk.state}"
            continue
        data = seen.object_of(chunk)
        if data is None:
            yield f"{row.file_path} points to {chunk.object_key}, which is not there"
        elif chunk.object_key not in damaged and (
            crc32c(_content(chunk, data, row)) != row.crc32c or row.end_byte > chunk.index_start_byte
        ):
            yield f"{row.file_path}: its bytes in {chunk.object_key} have another checksum"


def _content(chunk: Any, data: bytes, row: Any) -> bytes:
    """Of a file; what cannot be decoded is none."""
    try:
        return archives.content(chunk.format, data, row.start_byte, row.end_byte, row.decoding)
    except (ValueError, struct.error, IndexError):
        return b"it cannot be decoded"


def _chunks(seen: Seen, damaged: frozenset[str]) -> Iterator[str]:
    """Every kept chunk has its object, as its row describes it; so has every copy."""
    chunks = {row.id: row for row in seen.tables["chunks"]}
    rows = [(row, row) for row in chunks.values() if row.state in KEPT]
    rows += [(row, chunks[row.chunk_id]) for row in seen.tables["chunk_copies"] if row.state == "committed"]
    for place, chunk in rows:
        data, name = seen.object_of(place), f"{place.store} {place.object_key}"
        if data is None:
            yield f"{name} is not there"
        elif place.object_key not in damaged or place is not chunk:
            yield from (f"{name}: {problem}" for problem in _object_problems(chunk, data))


def _object_problems(chunk: Any, data: bytes) -> Iterator[str]:
    start, end, files = archives.parse(chunk.format, data)
    if chunk.adopted_prefix is not None:  # where its index is does not matter
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
            yield f"{file.path} has another checksum than its index says"


def _entries(seen: Seen, chunk: Any, damaged: frozenset[str]) -> list[Entry] | None:
    """With the paths that they have to have in the catalog. None where it cannot be known."""
    data = seen.object_of(chunk)
    if data is None or chunk.object_key in damaged:
        return None
    prefix = chunk.adopted_prefix or (chunk.object_key if _is_own_log(chunk) else "")
    return [
        replace(entry, path=prefix + entry.path, crc32c=_checksum(entry, data))
        for entry in archives.parse(chunk.format, data)[2]
    ]


def _checksum(entry: Entry, data: bytes) -> int:
    return crc32c(data[entry.start : entry.end]) if entry.crc32c is None else entry.crc32c


def _entries_once(seen: Seen, damaged: frozenset[str]) -> Iterator[str]:
    """Every entry of a kept chunk is live or retired, once, and nothing else is."""
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


def _log_files(seen: Seen, _damaged: frozenset[str]) -> Iterator[str]:
    """Every log file of a kept archive is in the catalog as the archive says, and no other is."""
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


def _counters(seen: Seen, _damaged: frozenset[str]) -> Iterator[str]:
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


def _nothing_else(seen: Seen, _damaged: frozenset[str]) -> Iterator[str]:
    """A store has the objects that rows name, and nothing else. A killed process may leave a probe, which has no
    content: the next `recover` of a store in use removes the probe (test_store_names.py)."""
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
            # Before a store has anything, no row leads recover to it: the next ingest removes the upload.
            if (own or not key.startswith(MARKERS)) and not key.startswith(PROBE):
                yield f"{url} has an upload of {key}"


def _markers(seen: Seen, _damaged: frozenset[str]) -> Iterator[str]:
    """A store has the marker of this catalog from before its first chunk on, and no other."""
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


def _journal(seen: Seen, _damaged: frozenset[str]) -> Iterator[str]:
    """Every journal record is in its stores, as its row says; no other is there."""
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
            yield from (f"{url} {key}: {what}" for what in _record_problems(seen.objects[url][key], row, chunk))
    for url, objects in seen.objects.items():
        for key in objects:
            if key.startswith(JOURNAL) and key not in records:
                yield f"{url} has {key}, which no row names"
    for row in seen.tables["journal_files"]:
        yield f"journal_files has {row.file_path} of journal {row.journal_id}, which every store has"


def _record_problems(data: bytes, row: Any, chunk: Any) -> Iterator[str]:
    head, files = parse_record(data)
    if (head["cafcat_journal"], head["sequence"], head["kind"]) != (1, row.id, row.kind):
        yield "its head is not that of its row"
    if chunk is not None:
        names = ("object_key", "size_bytes", "index_start_byte", "file_count", "crc64nvme", "index_crc32c")
        if any(head.get("chunk", {}).get(name) != getattr(chunk, name) for name in names):
            yield "what it says of its chunk is not what its row says"
        if any(UUID(file["chunk"]) != chunk.uuid for file in files):
            yield "it names files of other chunks"
    elif not files:
        yield "it names no file"


def parse_record(data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Head and files of a journal record. Raises ValueError for one that is not whole."""
    *before, foot = data.splitlines(keepends=True)
    documents = [json.loads(line) for line in before]
    if json.loads(foot) != {"files": len(documents) - 1, "crc32c": crc32c(b"".join(before))}:
        raise ValueError("the foot of a journal record is wrong")
    return documents[0], documents[1:]


def _told(seen: Seen, _damaged: frozenset[str]) -> Iterator[str]:
    """Every store knows what was removed and brought back since the first of the chunks that it has."""
    commits = {row.chunk_id: row.id for row in seen.tables["journal"] if row.chunk_id is not None}
    for url, objects in seen.objects.items():
        first = min((commits[row.id] for row in _kept_in(seen, url)), default=None)
        for row in seen.tables["journal"]:
            key = f"{JOURNAL}{row.id:020d}-{row.uuid}.jsonl"
            if first is not None and row.chunk_id is None and row.id > first and key not in objects:
                yield f"{url} has chunks, and was not told of journal {row.id} ({row.kind})"


def _kept_in(seen: Seen, url: str) -> list[Any]:
    """Chunks of our own that a store has, itself or as copies."""
    copies = seen.tables["chunk_copies"]
    copied = {row.chunk_id for row in copies if row.store == url and row.state == "committed"}
    return [row for row in _own(seen).values() if row.store == url or row.id in copied]


def _own(seen: Seen) -> dict[UUID, Any]:
    """Chunks that are kept, without archives of somebody else."""
    rows = seen.tables["chunks"]
    return {row.uuid: row for row in rows if row.state in KEPT and row.adopted_prefix is None}


def _replayed(seen: Seen, damaged: frozenset[str]) -> Iterator[str]:
    """From a store alone that has all chunks, the last event of each path says where it is: as file_locations. Of a
    path that an archive of somebody else has now it says what was before."""
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
            yield f"{path} is not where the journal in {url} says"
        for _, path, *_ in sorted(spot for spot in replayed - rows if spot[1] not in adopted):
            yield f"{path} is where the journal in {url} says, and the catalog does not"


def _events(seen: Seen, url: str, chunks: Mapping[UUID, Any]) -> Iterator[tuple[int, str, Spot | None]]:
    """(sequence, path, where it is from then on)."""
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

"""What reads the damaged files, and what has to hold of each: an error of cafcat's own, or entries that make sense.

Every target takes bytes and a stopwatch, which runs each reading of them, and returns a word for what came of them.
Whatever else is raised is a finding.
"""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from cafcat.catalog.files.mapping import Mapping
from cafcat.catalog.history.journal import JournalFile, JournalRecord
from cafcat.errors import CafcatError, Corrupt, InvalidInput, NotFound, Unsupported
from cafcat.formats import registry
from cafcat.formats.base import Format
from cafcat.formats.caf.format import CAF
from cafcat.formats.car import CAR
from cafcat.formats.chunkio import CHUNKIO
from cafcat.model import MAX_PATH_BYTES, Entry, FileProblem
from cafcat.operations.backup.tar import TarReader
from cafcat.operations.index_reading import read_index
from cafcat.operations.index_section import head_of
from cafcat.operations.own_index import WholeObject
from cafcat.progress import Progress
from cafcat.sources.base import Source
from cafcat.stores.base import ObjectInfo, StoredObject
from cafcat.support.checksums import crc32c, crc64nvme
from cafcat.testing.formats import BytesArchive
from cafcat.writing.journal_reader import JournalObject, read_head
from tests.fuzz.formats import read_car, read_chunkio, read_clp, read_databundle

__all__ = ["TARGETS", "RawStore", "Stopwatch", "Wrong"]

MIB = 1 << 20
JSON_BYTES = 1 << 18
"""Larger indexes are not read a second time by the json module: that takes much longer than the reader."""
MESSAGE_CHARACTERS = 20_000


class Wrong(Exception):
    """A reader gave what cannot be."""


class Stopwatch(Protocol):
    """Runs one reading, and takes its time."""

    def __call__(self, reading: Callable[[bytes], Any], data: bytes) -> Any: ...


class RawStore:
    """A store of one object in memory, as far as it is read."""

    url = "memory:"
    reads_in_flight = 1

    def __init__(self, data: bytes) -> None:
        self._archive = BytesArchive(data)

    def locate(self, key: str) -> str:
        return key

    def list(self, below: str = "") -> Iterator[ObjectInfo]:
        return iter(())

    def stat(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, self._archive.size_bytes)

    def read(self, key: str, start_byte: int, end_byte: int) -> bytes:
        return self._archive.read_at(start_byte, end_byte)

    def stream(self, key: str, start_byte: int, end_byte: int) -> Iterator[bytes]:
        for start in range(start_byte, end_byte, MIB):
            yield self._archive.read_at(start, min(end_byte, start + MIB))


def _refusal(error: CafcatError) -> str:
    """The word for an error. Raises Wrong for one that damage is no reason for, or that is not one line."""
    check(isinstance(error, Corrupt | Unsupported), f"an error that damage cannot be: {error!r}")
    text = str(error)
    check("\n" not in text and len(text) < MESSAGE_CHARACTERS, f"not a line: {text[:200]!r}")
    return error.kind


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Wrong(otherwise)


def take_archive(data: bytes, timed: Stopwatch) -> str:
    """What `inspect` and `recover` do: list the archive by its index; read all of it against its index."""
    listed = timed(listed_entries, data)
    whole = timed(whole_entries, data)
    if isinstance(listed, str):
        check(isinstance(whole, str), "an archive that cannot be listed was taken for whole")
        return listed
    _check_listed(data, listed)
    if isinstance(whole, str):
        return f"listed, {whole}"
    check(whole == listed, "two readings differ")
    _check_whole(data, whole)
    return "whole"


def listed_entries(data: bytes) -> list[Entry] | str:
    archive = BytesArchive(data)
    try:
        return list(registry.detect(archive).reader(archive).entries())
    except CafcatError as error:
        return _refusal(error)


def whole_entries(data: bytes, known: Format | None = None) -> list[Entry] | str:
    """known: its format, if that is not to be seen."""
    try:
        archive_format = known or registry.detect(BytesArchive(data))
        whole = WholeObject(RawStore(data), "key", archive_format, BlockCheck())  # type: ignore[arg-type]
        entries = list(whole.entries())
    except CafcatError as error:
        return _refusal(error)
    summary = whole.summary
    check(summary.size_bytes == len(data), "the size is not that of the file")
    check(summary.file_count == len(entries), "the number of files is not that of the entries")
    check(summary.crc64nvme == crc64nvme(data), "the checksum is not that of the file")
    return entries


class BlockCheck(Progress):
    def advance(self, files: int, size_bytes: int) -> None:
        check(0 < size_bytes <= MIB, "a block that is empty or too large")


def _check_listed(data: bytes, entries: list[Entry]) -> None:
    """The footer says where the data ends; the json module, which names there are."""
    data_end = len(data) - 4 - int.from_bytes(data[-4:], "little")
    check(data_end >= 0, "the index begins before the file")
    for path, start, end, checksum, modified_ns, *_ in entries:
        check(0 <= start <= end <= data_end, f"{path[:80]!r} is [{start}, {end}) of {data_end} bytes")
        check(checksum is None or 0 <= checksum < 1 << 32, f"the checksum of {path[:80]!r} is {checksum}")
        check(modified_ns is None or -(1 << 63) <= modified_ns < 1 << 63, f"the time of {path[:80]!r}")
        path.encode()
    check(len({entry.path for entry in entries}) == len(entries), "a path comes twice")
    index = data[data_end:-4]
    if len(index) <= JSON_BYTES:
        check(entries == _by_json(index), "the json module reads other entries")


def _by_json(index: bytes) -> list[Entry]:
    """Of a name that comes again the last counts, at its place."""
    pairs = json.loads(index, object_pairs_hook=lambda pairs: pairs, parse_int=str, parse_constant=_refuse)
    files = dict(pairs)["files"]
    last = {name: ordinal for ordinal, (name, _) in enumerate(files)}
    return [_entry(name, dict(members)) for ordinal, (name, members) in enumerate(files) if last[name] == ordinal]


def _refuse(name: str) -> None:
    raise Wrong(f"{name} is no JSON")


def _entry(name: str, members: dict[str, str]) -> Entry:
    numbers = (members.get(key) for key in Entry._fields[1:])
    return Entry(name, *(None if number is None else int(number) for number in numbers))  # type: ignore[arg-type]


def _check_whole(data: bytes, entries: list[Entry]) -> None:
    """What recover would put into the catalog."""
    position = 0
    for entry in entries:
        check(0 < len(entry.path.encode()) <= MAX_PATH_BYTES and "\0" not in entry.path, "a name that cannot be")
        check(entry.start_byte >= position, "two entries share bytes")
        check(crc32c(data[entry.start_byte : entry.end_byte]) == entry.crc32c, "a checksum that is wrong")
        position = entry.end_byte


def take_index(data: bytes, timed: Stopwatch) -> str:
    """What `rebuild` does: the index alone, on its way into the catalog."""
    return str(timed(_index, data))


def _index(data: bytes) -> str:
    store: Any = RawStore(data)
    archive = StoredObject(store, "key", size_bytes=len(data))
    try:
        with Mapping(1) as mapping:
            summary = read_index(archive, CAF, mapping, None)
            paths = list(mapping.paths())
    except CafcatError as error:
        return _refusal(error)
    start, end = summary.index_start_byte, summary.index_end_byte
    check(0 <= start <= end == len(data) - 4, f"the index cannot be [{start}, {end})")
    check(summary.index_crc32c == crc32c(data[start:]), "the checksum is not that of the index")
    listed = listed_entries(data)
    check(not isinstance(listed, str) and [entry.path for entry in listed] == paths, "two readers differ")
    check(
        all(0 < len(path.encode()) <= MAX_PATH_BYTES and "\0" not in path for path in paths),
        "a name that cannot be",
    )
    return "whole"


def take_backup(data: bytes, timed: Stopwatch) -> str:
    """What `db restore` reads before any of it goes to the database."""
    return str(timed(_backup, data))


def _backup(data: bytes) -> str:
    reader = TarReader(iter([data[at : at + MIB] for at in range(0, len(data), MIB)]), "backup")
    try:
        for name, size_bytes, content in reader.members():
            if name.endswith(".json"):
                check(isinstance(reader.document(size_bytes, content), dict), "no document")
                continue
            for rows in reader.rows(content):
                check(len(rows) <= MIB, f"{len(rows)} bytes at once")
    except CafcatError as error:
        return _refusal(error)
    return "whole"


JOURNAL_KEY = "journal/00000000000000000007-3d0c7c0e-5b7e-4d0f-9d55-0a4d3f7f7b99.jsonl"


def take_journal(data: bytes, timed: Stopwatch) -> str:
    """What `rebuild` does with a journal record."""
    return str(timed(_journal, data))


def _journal(data: bytes) -> str:
    store: Any = RawStore(data)
    try:
        read_head(store, JOURNAL_KEY, len(data))
        journal = JournalObject(store, JOURNAL_KEY, len(data))
        files = list(journal.files())
    except CafcatError as error:
        return _refusal(error)
    check(journal.file_count == len(files), "two readings differ")
    _check_journal(data, journal.record, files)
    return "whole"


def _check_journal(data: bytes, record: JournalRecord, files: list[JournalFile]) -> None:
    """The foot is computed anew, and the lines are read by the json module."""
    *lines, foot, _ = data.split(b"\n")
    before = data[: len(data) - len(foot) - 1]
    said = json.loads(foot)
    check((said["files"], said["crc32c"]) == (len(files), crc32c(before)), "a foot that is wrong")
    head, *bodies = map(json.loads, lines)
    check((record.sequence, record.kind) == (7, head["kind"]), "another change than its name and head say")
    check(
        [(file.path, str(file.chunk), file.start_byte) for file in files] == [_said(line) for line in bodies],
        "others",
    )
    paths = [path.encode() for path, _, _ in files]
    check(paths == sorted(set(paths)), "paths twice, or not in order")
    check(all(0 < len(path) <= MAX_PATH_BYTES and b"\0" not in path for path in paths), "a name that cannot be")
    check(all(0 <= file.start_byte < 1 << 63 for file in files), "a place that cannot be")
    chunk = record.chunk
    if chunk is not None:
        sizes = (0, chunk.index_start_byte, chunk.index_end_byte, chunk.size_bytes, (1 << 63) - 1)
        check(list(sizes) == sorted(sizes), f"sizes that cannot be: {sizes}")
        check(0 <= chunk.data_bytes < 1 << 63, f"a size that cannot be: {chunk.data_bytes}")
        check(".." not in chunk.object_key.split("/") and chunk.object_key[:1] != "/", "a key that leads elsewhere")


def _said(line: Any) -> tuple[str, str, int]:
    return line["path"], line["chunk"], line["start_byte"]


def take_inventory(data: bytes, timed: Stopwatch) -> str:
    """Rows of an S3 Inventory; the wrong bucket and missing columns are the user's mistakes, as it were."""
    name = "data.csv.gz" if data[:2] == b"\x1f\x8b" else "data.csv"
    Path(name).write_bytes(data)
    return str(timed(lambda _: _rows(name), data))


def take_manifest(data: bytes, timed: Stopwatch) -> str:
    """A manifest whose data file is empty."""
    Path("data.csv").write_bytes(b"")
    Path("manifest.json").write_bytes(data)
    return str(timed(lambda _: _rows("manifest.json"), data))


def _rows(name: str) -> str:
    from cafcat.sources.kind import SourceContext
    from cafcat.sources.s3.inventory import read_inventory

    try:
        for key, size_bytes, _, _ in read_inventory(name, SourceContext(options_of=_no_access), "bucket"):
            check(bool(key) and 0 <= size_bytes < 10**18, f"a row that cannot be: {key!r}, {size_bytes}")
    except (InvalidInput, NotFound) as error:
        check("\n" not in str(error), f"not a line: {error!r}")
        return error.kind
    except CafcatError as error:
        return _refusal(error)
    return "whole"


def _no_access(url: str) -> Any:
    raise Wrong(f"a local inventory led to {url}")


def take_tar(data: bytes, timed: Stopwatch) -> str:
    """As a file and as a stream. Damage is a problem that is reported, and never an exception."""
    from cafcat.sources.tar.file import TarFileSource
    from cafcat.sources.tar.stream import TarStreamSource

    Path("x.tar").write_bytes(data)
    problems = timed(lambda _: _problems(TarFileSource("x.tar")), data)
    problems += timed(lambda _: _problems(TarStreamSource(io.BytesIO(data))), data)
    return "corrupt" if problems else "whole"


def _problems(source: Source) -> int:
    problems = 0
    for item in source.files():
        if isinstance(item, FileProblem):
            problems += item.kind.is_failure
            continue
        with source.open(item) as opened:
            content = opened.read()
        check(len(content) == opened.size_bytes, f"{len(content)} bytes of {opened.size_bytes}")
    return problems


def take_car(data: bytes, timed: Stopwatch) -> str:
    """As files, and as blocks; and as `recover` and `rebuild` would take it."""
    _take_into_catalog(data, CAR, timed)
    return str(timed(read_car, data))


def take_chunkio(data: bytes, timed: Stopwatch) -> str:
    """Records, and what `adopt` would list and read of them; and as `recover` and `rebuild` would take it."""
    _take_into_catalog(data, CHUNKIO, timed)
    return str(timed(read_chunkio, data))


def _take_into_catalog(data: bytes, archive_format: Format, timed: Stopwatch) -> None:
    """What is whole is told the same by its index alone."""
    whole = timed(lambda data: whole_entries(data, archive_format), data)
    indexed = timed(lambda data: _indexed(data, archive_format), data)
    check(isinstance(whole, str) or indexed == [entry.path for entry in whole], "an index that says something else")


def _indexed(data: bytes, archive_format: Format) -> list[str] | str:
    store: Any = RawStore(data)
    try:
        head = head_of(store, "key", len(data), archive_format)
        with Mapping(1) as mapping:
            read_index(StoredObject(store, "key", size_bytes=len(data)), archive_format, mapping, None, head=head)
            return list(mapping.paths())
    except CafcatError as error:
        return _refusal(error)


def take_clp(data: bytes, timed: Stopwatch) -> str:
    """The container of a clp-s archive, and its metadata."""
    return str(timed(read_clp, data))


def take_databundle(data: bytes, timed: Stopwatch) -> str:
    """The table of a shard, and every file."""
    return str(timed(read_databundle, data))


TARGETS: dict[str, Callable[[bytes, Stopwatch], str]] = {
    "caf": take_archive,
    "index": take_index,
    "journal": take_journal,
    "backup": take_backup,
    "inventory": take_inventory,
    "manifest": take_manifest,
    "tar": take_tar,
    "car": take_car,
    "chunkio": take_chunkio,
    "clp": take_clp,
    "databundle": take_databundle,
}

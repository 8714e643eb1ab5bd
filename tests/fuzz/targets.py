"""Readers of the damaged files, with checks: each file gives an error of cafcat's own, or consistent entries.

Every target gets bytes and a stopwatch, with which it runs each reading, and returns a word for the outcome. Any
other exception is a finding.
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
from cafcat.native.library import library, turned_off
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
"""Larger indexes are not read again by the json module, which is much slower than the reader."""
MESSAGE_CHARACTERS = 20_000


class Wrong(Exception):
    """A reader gave an impossible result."""


class Stopwatch(Protocol):
    """Runs a reading, and measures its time."""

    def __call__(self, reading: Callable[[bytes], Any], data: bytes) -> Any: ...


class RawStore:
    """A store of one object in memory, with the methods for reading."""

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
    """Return the kind of an error. Raises Wrong if damage cannot cause it, or if its message has several lines."""
    check(isinstance(error, Corrupt | Unsupported), f"not an error for damage: {error!r}")
    text = str(error)
    check(
        "\n" not in text and len(text) < MESSAGE_CHARACTERS,
        f"the message is too long or has several lines: {text[:200]!r}",
    )
    return error.kind


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Wrong(otherwise)


def read_archive(data: bytes, timed: Stopwatch) -> str:
    """List the archive by its index, as `inspect` does, and read all of it, as `recover` does."""
    listed = timed(listed_entries, data)
    if library() is not None:
        with turned_off():
            without = _entries_or_error(data)
        check(_entries_or_error(data) == without, "the native part has another result than Python")
    whole = timed(whole_entries, data)
    if isinstance(listed, str):
        check(isinstance(whole, str), "an archive that cannot be listed was read as whole")
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


def _entries_or_error(data: bytes) -> list[Entry] | str:
    archive = BytesArchive(data)
    try:
        return list(registry.detect(archive).reader(archive).entries())
    except CafcatError as error:
        return str(error)


def whole_entries(data: bytes, known: Format | None = None) -> list[Entry] | str:
    """Return the entries after reading the whole archive. known: its format, if it cannot be detected."""
    try:
        archive_format = known or registry.detect(BytesArchive(data))
        whole = WholeObject(RawStore(data), "key", archive_format, BlockCheck())  # type: ignore[arg-type]
        entries = list(whole.entries())
    except CafcatError as error:
        return _refusal(error)
    summary = whole.summary
    check(summary.size_bytes == len(data), "the size differs from the file's")
    check(summary.file_count == len(entries), "the number of files differs from that of the entries")
    check(summary.crc64nvme == crc64nvme(data), "the checksum differs from the file's")
    return entries


class BlockCheck(Progress):
    def advance(self, files: int, size_bytes: int) -> None:
        check(0 < size_bytes <= MIB, "a block is empty or too large")


def _check_listed(data: bytes, entries: list[Entry]) -> None:
    """Check entries against the footer, and, for small indexes, against the entries that the json module reads."""
    data_end = len(data) - 4 - int.from_bytes(data[-4:], "little")
    check(data_end >= 0, "the index begins before the file")
    for path, start, end, checksum, modified_ns, *_ in entries:
        check(0 <= start <= end <= data_end, f"{path[:80]!r} is [{start}, {end}) of {data_end} bytes")
        check(checksum is None or 0 <= checksum < 1 << 32, f"the checksum of {path[:80]!r} is {checksum}")
        check(modified_ns is None or -(1 << 63) <= modified_ns < 1 << 63, f"the time of {path[:80]!r}")
        path.encode()
    check(len({entry.path for entry in entries}) == len(entries), "a path is repeated")
    index = data[data_end:-4]
    if len(index) <= JSON_BYTES:
        check(entries == _by_json(index), "the json module reads other entries")


def _by_json(index: bytes) -> list[Entry]:
    """Return the entries by the json module.

    The last of several entries with one name counts, at its own position.
    """
    pairs = json.loads(index, object_pairs_hook=lambda pairs: pairs, parse_int=str, parse_constant=_refuse)
    files = dict(pairs)["files"]
    last = {name: ordinal for ordinal, (name, _) in enumerate(files)}
    return [_entry(name, dict(members)) for ordinal, (name, members) in enumerate(files) if last[name] == ordinal]


def _refuse(name: str) -> None:
    raise Wrong(f"{name} is not JSON")


def _entry(name: str, members: dict[str, str]) -> Entry:
    numbers = (members.get(key) for key in Entry._fields[1:])
    return Entry(name, *(None if number is None else int(number) for number in numbers))  # type: ignore[arg-type]


def _check_whole(data: bytes, entries: list[Entry]) -> None:
    """Check the entries that recover would put into the catalog."""
    position = 0
    for entry in entries:
        check(0 < len(entry.path.encode()) <= MAX_PATH_BYTES and "\0" not in entry.path, "an invalid path")
        check(entry.start_byte >= position, "two entries share bytes")
        check(crc32c(data[entry.start_byte : entry.end_byte]) == entry.crc32c, "a wrong checksum")
        position = entry.end_byte


def read_index_alone(data: bytes, timed: Stopwatch) -> str:
    """Read the index alone into a mapping, as `rebuild` does."""
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
    check(summary.index_crc32c == crc32c(data[start:]), "the checksum differs from the index's")
    listed = listed_entries(data)
    check(not isinstance(listed, str) and [entry.path for entry in listed] == paths, "two readers differ")
    check(
        all(0 < len(path.encode()) <= MAX_PATH_BYTES and "\0" not in path for path in paths),
        "an invalid path",
    )
    return "whole"


def read_backup(data: bytes, timed: Stopwatch) -> str:
    """Read a backup as `db restore` does before it writes to the database."""
    return str(timed(_backup, data))


def _backup(data: bytes) -> str:
    reader = TarReader(iter([data[at : at + MIB] for at in range(0, len(data), MIB)]), "backup")
    try:
        for name, size_bytes, content in reader.members():
            if name.endswith(".json"):
                check(isinstance(reader.document(size_bytes, content), dict), "not a document")
                continue
            for rows in reader.rows(content):
                check(len(rows) <= MIB, f"{len(rows)} bytes at once")
    except CafcatError as error:
        return _refusal(error)
    return "whole"


JOURNAL_KEY = "journal/00000000000000000007-3d0c7c0e-5b7e-4d0f-9d55-0a4d3f7f7b99.jsonl"


def read_journal(data: bytes, timed: Stopwatch) -> str:
    """Read a journal record as `rebuild` does."""
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
    """Check a record against a newly computed foot, and its lines against the json module."""
    *lines, foot, _ = data.split(b"\n")
    before = data[: len(data) - len(foot) - 1]
    expected = json.loads(foot)
    check((expected["files"], expected["crc32c"]) == (len(files), crc32c(before)), "a wrong foot")
    head, *bodies = map(json.loads, lines)
    check((record.sequence, record.kind) == (7, head["kind"]), "sequence or kind differs from name and head")
    check(
        [(file.path, str(file.chunk), file.start_byte) for file in files] == [_file_of(line) for line in bodies],
        "other files",
    )
    paths = [path.encode() for path, _, _ in files]
    check(paths == sorted(set(paths)), "paths are repeated, or not in order")
    check(all(0 < len(path) <= MAX_PATH_BYTES and b"\0" not in path for path in paths), "an invalid path")
    check(all(0 <= file.start_byte < 1 << 63 for file in files), "an impossible position")
    chunk = record.chunk
    if chunk is not None:
        sizes = (0, chunk.index_start_byte, chunk.index_end_byte, chunk.size_bytes, (1 << 63) - 1)
        check(list(sizes) == sorted(sizes), f"impossible sizes: {sizes}")
        check(0 <= chunk.data_bytes < 1 << 63, f"an impossible size: {chunk.data_bytes}")
        check(
            ".." not in chunk.object_key.split("/") and chunk.object_key[:1] != "/",
            "the key leads out of the store",
        )


def _file_of(line: Any) -> tuple[str, str, int]:
    return line["path"], line["chunk"], line["start_byte"]


def read_inventory_file(data: bytes, timed: Stopwatch) -> str:
    """Read the rows of an S3 Inventory. A wrong bucket or a missing column is an error of the user's."""
    name = "data.csv.gz" if data[:2] == b"\x1f\x8b" else "data.csv"
    Path(name).write_bytes(data)
    return str(timed(lambda _: _rows(name), data))


def read_manifest(data: bytes, timed: Stopwatch) -> str:
    """Read a manifest whose data file is empty."""
    Path("data.csv").write_bytes(b"")
    Path("manifest.json").write_bytes(data)
    return str(timed(lambda _: _rows("manifest.json"), data))


def _rows(name: str) -> str:
    from cafcat.sources.kind import SourceContext
    from cafcat.sources.s3.inventory import read_inventory

    try:
        for key, size_bytes, _, _ in read_inventory(name, SourceContext(options_of=_no_access), "bucket"):
            check(bool(key) and 0 <= size_bytes < 10**18, f"an impossible row: {key!r}, {size_bytes}")
    except (InvalidInput, NotFound) as error:
        check("\n" not in str(error), f"the message has several lines: {error!r}")
        return error.kind
    except CafcatError as error:
        return _refusal(error)
    return "whole"


def _no_access(url: str) -> Any:
    raise Wrong(f"a local inventory opened {url}")


def read_tar(data: bytes, timed: Stopwatch) -> str:
    """Read a tar as a file and as a stream. Damage is reported as a problem, never raised."""
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


def read_car_into_catalog(data: bytes, timed: Stopwatch) -> str:
    """Read a CAR as files and as blocks, and into a mapping as `recover` and `rebuild` do."""
    _read_into_catalog(data, CAR, timed)
    return str(timed(read_car, data))


def read_chunkio_into_catalog(data: bytes, timed: Stopwatch) -> str:
    """Read records and files as `adopt` does, and into a mapping as `recover` and `rebuild` do."""
    _read_into_catalog(data, CHUNKIO, timed)
    return str(timed(read_chunkio, data))


def _read_into_catalog(data: bytes, archive_format: Format, timed: Stopwatch) -> None:
    """Check that the index of a whole archive lists the same paths as reading the whole archive."""
    whole = timed(lambda data: whole_entries(data, archive_format), data)
    indexed = timed(lambda data: _indexed(data, archive_format), data)
    check(isinstance(whole, str) or indexed == [entry.path for entry in whole], "the index lists other paths")


def _indexed(data: bytes, archive_format: Format) -> list[str] | str:
    store: Any = RawStore(data)
    try:
        head = head_of(store, "key", len(data), archive_format)
        with Mapping(1) as mapping:
            read_index(StoredObject(store, "key", size_bytes=len(data)), archive_format, mapping, None, head=head)
            return list(mapping.paths())
    except CafcatError as error:
        return _refusal(error)


def read_clp_archive(data: bytes, timed: Stopwatch) -> str:
    """Read a clp-s archive with its metadata."""
    return str(timed(read_clp, data))


def read_databundle_chunk(data: bytes, timed: Stopwatch) -> str:
    """Read the table of a shard, and every file."""
    return str(timed(read_databundle, data))


TARGETS: dict[str, Callable[[bytes, Stopwatch], str]] = {
    "caf": read_archive,
    "index": read_index_alone,
    "journal": read_journal,
    "backup": read_backup,
    "inventory": read_inventory_file,
    "manifest": read_manifest,
    "tar": read_tar,
    "car": read_car_into_catalog,
    "chunkio": read_chunkio_into_catalog,
    "clp": read_clp_archive,
    "databundle": read_databundle_chunk,
}

"""Reads journal records from their objects in a store, whose contents are not trusted.

An object is read from its first byte to its last, in blocks, before any of its contents is used. A line has at most
64 KiB. A huge or forged object therefore costs only the time to read it. docs/formats/journal.md has the format.
"""

import base64
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from cafcat.catalog.history.journal import (
    JournalChunk,
    JournalFile,
    JournalOrigin,
    JournalRecord,
    JournalRun,
    JournalStore,
)
from cafcat.errors import Corrupt, InvalidInput, Unsupported
from cafcat.model import MAX_PATH_BYTES, JournalKind
from cafcat.stores.base import Store
from cafcat.stores.keys import check_key
from cafcat.support.checksums import crc32c
from cafcat.writing.journal import VERSION, parse_journal_key

__all__ = ["MAX_LINE_BYTES", "JournalObject", "read_head"]

MAX_LINE_BYTES: Final = 64 << 10
"""Largest valid line, in bytes. The longest line that cafcat writes has about 14 KB: a path of 2,048 control
characters, each escaped."""

_BUFFERED_BYTES: Final = 1 << 20
_INT64_MAX: Final = (1 << 63) - 1
_MAX_RUN: Final = 10**15
"""Largest valid number of a run. No catalog has so many, and a forged number must leave numbers for later runs."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


def read_head(store: Store, key: str, size_bytes: int) -> JournalRecord | None:
    """Return the record in the first line of a damaged journal object; None if that line cannot be used, either.

    It cannot be used if it is damaged, has more than 64 KiB, or was written by a later version of cafcat.

    Args:
        store: The store.
        key: Key of the object.
        size_bytes: Size of the object.

    Raises:
        NotFound, StoreFailed, AccessDenied: The object cannot be read.
    """
    line, end, _ = store.read(key, 0, min(size_bytes, MAX_LINE_BYTES)).partition(b"\n")
    try:
        return _record(_document(line), key) if end else None
    except (ValueError, Unsupported):
        return None


class JournalObject:
    """One journal record, from its complete and undamaged object in a store.

    Attributes:
        record: The record. `record.unwritten` is empty.
        file_count: Number of files in the record.
    """

    def __init__(self, store: Store, key: str, size_bytes: int) -> None:
        """Read and check the whole object of a journal record.

        Args:
            store: The store.
            key: Key of the object, which has the sequence number and the uuid of the record.
            size_bytes: Size of the object.

        Raises:
            Corrupt: The object is damaged.
            Unsupported: A later version of cafcat wrote the object.
            NotFound: The object is missing.
            StoreFailed, AccessDenied: The store failed.
        """
        self._store, self._key, self._size_bytes = store, key, size_bytes
        self._buffered = store.read(key, 0, size_bytes) if size_bytes <= _BUFFERED_BYTES else None
        self.file_count = 0
        lines = self._read_lines()
        first = next(lines, None)
        if first is None:
            raise self._corrupt("it is empty", 0)
        self.record = self._parsed(_record, first, 0)
        last = None
        for last in self._checked_files(first, lines):  # noqa: B007 - all of them are looked at
            self.file_count += 1

    def origins(self) -> Iterator[JournalOrigin]:
        """Return an iterator over the origins of the files of a moved chunk; an empty one if the record has none.

        Raises:
            Corrupt, NotFound, StoreFailed, AccessDenied: As `files` raises them.
        """
        lines = self._read_lines()
        next(lines)
        for line in lines:
            found = _document(line)
            if not _is_origin(found):
                return
            yield _origin(found, self._key)

    def files(self) -> Iterator[JournalFile]:
        """Return an iterator over the files of the record, in order of path.

        An object of more than 1 MiB is read from the store again; a smaller one was kept in memory.

        Raises:
            Corrupt, NotFound, StoreFailed, AccessDenied: The object was changed or removed meanwhile, or the store
                failed.
        """
        lines = self._read_lines()
        return self._checked_files(next(lines), lines)

    def _checked_files(self, first: bytes, lines: Iterator[bytes]) -> Iterator[JournalFile]:
        """Yield the files, then check that the last line has their number and the right checksum.

        Args:
            first: The first line of the object.
            lines: All further lines.

        Raises:
            Corrupt: A line is damaged, the paths are not in ascending order, or number or checksum differ.
        """
        byte, checksum, count, line, last = 0, 0, 0, first, b""
        for following in lines:
            if byte:
                file: JournalFile | JournalOrigin = self._parsed(_file_or_origin, line, byte)
                if isinstance(file, JournalFile):
                    if last >= (last := file.path.encode()):
                        raise self._corrupt("its paths are not in ascending order", byte)
                    yield file
                    count += 1
                elif count:
                    raise self._corrupt("a line about origins comes after a file", byte)
            checksum = crc32c(line + b"\n", checksum)
            byte += len(line) + 1
            line = following
        foot = self._parsed(_foot, line, byte) if byte else None
        if foot != (count, checksum):
            raise self._corrupt("its last line has another number of files or another checksum", byte)

    def _read_lines(self) -> Iterator[bytes]:
        """Yield the lines of the object without their line breaks. Raises Corrupt for a line that is too long."""
        whole = self._buffered
        blocks = self._store.stream(self._key, 0, self._size_bytes) if whole is None else iter((whole,))
        rest, byte = b"", 0
        for piece in _pieces(blocks):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if len(line) > MAX_LINE_BYTES:
                    break
                yield line
                byte += len(line) + 1
            else:
                line = rest
            if len(line) > MAX_LINE_BYTES:
                raise self._corrupt(f"it has a line of more than {MAX_LINE_BYTES:,} bytes", byte)
        if rest:
            raise self._corrupt("its last line has no line break", byte)

    def _parsed(self, parse: Any, line: bytes, byte: int) -> Any:
        try:
            return parse(_document(line), self._key)
        except ValueError as error:
            raise self._corrupt(str(error), byte) from error
        except Unsupported as error:
            error.chunk = self._store.locate(self._key)
            raise

    def _corrupt(self, message: str, byte: int) -> Corrupt:
        return Corrupt(f"the journal record is damaged: {message}", chunk=self._store.locate(self._key), byte=byte)


def _pieces(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the bytes of the blocks in pieces of at most 64 KiB.

    This bounds the number of lines, and so of Python objects, at one time if a block has only line breaks.
    """
    for block in blocks:
        for at in range(0, len(block), MAX_LINE_BYTES):
            yield block[at : at + MAX_LINE_BYTES]


def _document(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line. Raises ValueError if the line has none."""
    try:
        document = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError("a line is not JSON") from error
    if not isinstance(document, dict):
        raise ValueError("a line is not a JSON object")
    return document


def _record(document: dict[str, Any], key: str) -> JournalRecord:
    version = document.get("cafcat_journal")
    if version not in (1, VERSION):
        if type(version) is int and version > VERSION:
            raise Unsupported(f"the journal record has version {version}; this cafcat reads version {VERSION}")
        raise ValueError("its first line is not the head of a journal record")
    found = parse_journal_key(key)
    if found is None or document.get("sequence") != found[0]:
        raise ValueError("its sequence number differs from the one in its name")
    kind = document.get("kind")
    if kind not in list(JournalKind):
        raise ValueError("its kind of change is unknown")
    chunk = document.get("chunk")
    if (chunk is not None) != (kind in (JournalKind.COMMIT, JournalKind.MOVE)):
        raise ValueError("only a commit and a move have a chunk, and each must have one")
    of = None if chunk is None else _chunk(chunk)
    catalog = None if document.get("catalog") is None else _uuid(document, "catalog")
    run = None if document.get("run") is None else _run(document["run"])
    happened_at = _time(document, "happened_at")
    stores, damaged = _stores(document.get("stores", [])), _uuids(document.get("damaged_retired", []))
    return JournalRecord(found[0], found[1], JournalKind(kind), happened_at, (), of, catalog, run, stores, damaged)


def _chunk(document: Any) -> JournalChunk:
    if not isinstance(document, dict):
        raise ValueError("its chunk is not a JSON object")
    size, data = _number(document, "size_bytes"), _number(document, "data_bytes")
    start, end = _number(document, "index_start_byte"), _number(document, "index_end_byte")
    if not start <= end <= size:
        raise ValueError("the index of its chunk is not inside the chunk")
    index_crc32c = None if document.get("index_crc32c") is None else _number(document, "index_crc32c", 0xFFFF_FFFF)
    archive_format = document.get("format")
    if not isinstance(archive_format, str) or not re.fullmatch(r"[a-z0-9_-]{1,32}", archive_format):
        raise ValueError("its chunk has no valid format name")
    return JournalChunk(
        _uuid(document, "uuid"),
        archive_format,
        _object_key(document),
        size,
        data,
        start,
        end,
        _number(document, "file_count"),
        _crc64nvme(document),
        index_crc32c,
        _time(document, "begun_at"),
    )


def _run(document: Any) -> JournalRun:
    if not isinstance(document, dict):
        raise ValueError("its run is not a JSON object")
    started_at, (host, version) = _time(document, "started_at"), (document.get("host"), document.get("version"))
    if not all(
        isinstance(text, str) and "\0" not in text and len(text) <= MAX_PATH_BYTES for text in (host, version)
    ):
        raise ValueError("host and version of its run are not texts")
    return JournalRun(_number(document, "id", _MAX_RUN), started_at, str(host), str(version))


def _stores(documents: Any) -> tuple[JournalStore, ...]:
    if not isinstance(documents, list) or not all(isinstance(document, dict) for document in documents):
        raise ValueError("its stores are not a list of JSON objects")
    return tuple(_store(document) for document in documents)


def _store(document: dict[str, Any]) -> JournalStore:
    url, chunks, name = document.get("url"), document.get("chunks"), document.get("name")
    if not isinstance(url, str) or "\0" in url or not isinstance(chunks, bool):
        raise ValueError("url and chunks of a store are not a text and a truth value")
    if name is not None and (not isinstance(name, str) or "\0" in name):
        raise ValueError("the name of a store is not a text")
    return JournalStore(_uuid(document, "uuid"), url, chunks, name)


def _is_origin(document: dict[str, Any]) -> bool:
    """Return True for a line about origins. A foot has the number of files, too, and a checksum."""
    return "files" in document and "crc32c" not in document


def _origin(document: dict[str, Any], _key: str) -> JournalOrigin:
    run = None if document.get("run") is None else _run(document["run"])
    since = None if document.get("since") is None else _time(document, "since")
    return JournalOrigin(_number(document, "files"), run, since)


def _file_or_origin(document: dict[str, Any], key: str) -> JournalFile | JournalOrigin:
    return _origin(document, key) if _is_origin(document) else _file(document, key)


def _file(document: dict[str, Any], _key: str) -> JournalFile:
    path = document.get("path")
    if not isinstance(path, str) or "\0" in path or not 0 < len(path.encode()) <= MAX_PATH_BYTES:
        raise ValueError("it has a path that the catalog cannot store")
    return JournalFile(path, _uuid(document, "chunk"), _number(document, "start_byte"))


def _foot(document: dict[str, Any], _key: str) -> tuple[int, int]:
    return _number(document, "files"), _number(document, "crc32c", 0xFFFF_FFFF)


def _number(document: dict[str, Any], name: str, most: int = _INT64_MAX) -> int:
    value = document.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} is not a whole number from 0 to {most}")
    return value


def _uuid(document: dict[str, Any], name: str) -> UUID:
    value = document.get(name)
    if not isinstance(value, str) or str(found := UUID(value)) != value:
        raise ValueError(f"{name} is not a uuid")
    return found


def _uuids(values: Any) -> tuple[UUID, ...]:
    if not isinstance(values, list):
        raise ValueError("damaged_retired is not a list")
    return tuple(_uuid({"damaged_retired": value}, "damaged_retired") for value in values)


def _time(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError(f"{name} is not a time in UTC")
    datetime.fromisoformat(value)  # raises ValueError for February 30
    return value


def _crc64nvme(document: dict[str, Any]) -> str | None:
    value = document.get("crc64nvme")
    if value is None:
        return None
    if not isinstance(value, str) or len(base64.b64decode(value, validate=True)) != 8:
        raise ValueError("crc64nvme is not the base64 of 8 bytes")
    return value


def _object_key(document: dict[str, Any]) -> str:
    value = document.get("object_key")
    try:
        return check_key(value if isinstance(value, str) else "")
    except InvalidInput as error:
        raise ValueError("its chunk has no valid object key") from error

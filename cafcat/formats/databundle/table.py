"""The table at the end of a chunk: rows of keys and values, read in windows."""

from collections.abc import Iterator
from typing import Any, Final

from cafcat.errors import Corrupt, shown_path
from cafcat.formats.base import RandomReader
from cafcat.formats.databundle.decoding import parse_decoding
from cafcat.formats.databundle.layout import BUNDLE_CONFIG, SHARD_METADATA, Trailer, path_of
from cafcat.formats.databundle.messages import FILE_TYPE_URL, REGULAR, messages
from cafcat.formats.repeats import SupersededNames
from cafcat.model import Entry
from cafcat.support.checksums import crc32c

__all__ = ["Table"]

_WINDOW_BYTES: Final = 256 << 10
_LONGEST_ROW: Final = 64 << 10
_LONGEST_SIZE: Final = 3
"""Bytes of the varint that says so."""
_ROW_TAG: Final = 0x0A
_SMALLEST_ROW: Final = 4
"""A key of a byte, at least, and sizes. Rows of nothing would be many in a window."""


class Table:
    """Memory: windows of 256 KiB and their rows, and what SupersededNames needs."""

    def __init__(self, archive: RandomReader, place: Trailer, end: int) -> None:
        """end: where the trailer begins."""
        self._archive = archive
        self._place = place
        self._end = end
        self._crc32c: int | None = None
        """Of the windows that were read so far, while the table is checked."""

    def entries(self) -> Iterator[Entry]:
        """The files in the order of the table, each path once: of one that comes again the last. The call reads all
        of it once, and raises Corrupt if its checksum is another, or a row cannot be read. An entry that makes no
        sense raises when its turn comes. Raises TemporaryFileFailed if millions of names find no room."""
        superseded = None if self._ascends() else SupersededNames(self._names())
        entries = self._entries()
        if not superseded:
            return entries
        return (entry for ordinal, entry in enumerate(entries) if ordinal not in superseded)

    def _ascends(self) -> bool:
        """Whether each name comes after the one before: then none comes twice. Checks all of the table."""
        last, ascends = b"", True
        self._crc32c = 0
        for name in self._names():
            ascends = ascends and last < name
            last = name
        found, self._crc32c = self._crc32c, None
        if found != self._place.crc32c:
            message = f"the table of metadata has the CRC-32C {found:08x}, not {self._place.crc32c:08x}"
            raise self._corrupt(message, self._place.table_start)
        return ascends

    def _names(self) -> Iterator[bytes]:
        for key, _, position in self._rows():
            path = self._path_of(key, position)
            if path is not None:
                yield path.encode()

    def _path_of(self, key: bytes, position: int) -> str | None:
        try:
            return path_of(key)
        except ValueError as error:
            raise self._corrupt(f"a row is of a file whose name cannot be read: {error}", position) from error

    def _entries(self) -> Iterator[Entry]:
        data_end, zero_records = self._place.data_start, 0
        for key, value, position in self._rows():
            path = self._path_of(key, position)
            if path is None:
                zero_records += self._is_zero_record(key, value, position)
                continue
            entry = self._entry(path, value, position)
            if not data_end <= entry.start_byte <= entry.end_byte <= self._place.table_start:
                message = f"[{entry.start_byte}, {entry.end_byte}) cannot be the records of a file"
                raise self._corrupt(message, position, entry.path)
            data_end = entry.end_byte
            zero_records -= _zero_records(entry)
            if zero_records < 0:
                raise self._corrupt("it has records of zeros that are not in the table", position, entry.path)
            yield entry

    def _is_zero_record(self, key: bytes, value: bytes, position: int) -> bool:
        if key[0] == SHARD_METADATA:
            return bool(self._parsed(messages().RecordMetadata, value, position).all_zeros)
        if key != bytes([BUNDLE_CONFIG]):
            raise self._corrupt(f"a row is of a table {key[0]} that is not known", position)
        return False

    def _entry(self, path: str, value: bytes, position: int) -> Entry:
        metadata = self._parsed(messages().FileMetadata, value, position)
        if metadata.type != REGULAR or metadata.user_data.type_url != FILE_TYPE_URL:
            raise self._corrupt("a row is of no file that cafcat wrote", position, path)
        file = self._parsed(messages().BundleFile, metadata.user_data.value, position)
        modified_ns = file.modified_ns if file.HasField("modified_ns") else None
        size_bytes, span = metadata.uncompressed_size, (file.start_byte, file.end_byte)
        if not size_bytes and not file.decoding and span[0] == span[1]:
            return Entry(path, *span, metadata.crc32c, modified_ns)
        if not size_bytes or parse_decoding(file.decoding) is None:
            raise self._corrupt("how a file is to be decoded makes no sense", position, path)
        return Entry(path, *span, metadata.crc32c, modified_ns, size_bytes, file.decoding)

    def _parsed(self, kind: Any, data: bytes, position: int) -> Any:
        try:
            return kind.FromString(data)
        except messages().DecodeError as error:
            raise self._corrupt("a row of the table cannot be read", position) from error

    def _windows(self) -> Iterator[tuple[int, int]]:
        for start in range(self._place.table_start, self._end, _WINDOW_BYTES):
            yield start, min(start + _WINDOW_BYTES, self._end)

    def _rows(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Key, value, and a position before the row."""
        text, at = b"", self._place.table_start
        for start, end in self._windows():
            text += self._window(start, end)
            cut = self._whole_rows(text, at)
            for row in self._parsed(messages().Table, text[:cut], at).rows:
                if not row.key:
                    raise self._corrupt("a row of the table has no key", at)
                yield row.key, row.value, at
            text, at = text[cut:], at + cut
        if text:
            raise self._corrupt("the last row of the table is cut", at)

    def _window(self, start: int, end: int) -> bytes:
        data = self._archive.read_at(start, end)
        if self._crc32c is not None:
            self._crc32c = crc32c(data, self._crc32c)
        return data

    def _whole_rows(self, text: bytes, position: int) -> int:
        """Where the last row ends that is whole."""
        at, length = 0, len(text)
        while at < length:
            head = text[at : at + 1 + _LONGEST_SIZE]
            data_at, size_bytes = _size_of(head)
            if head[0] != _ROW_TAG or (data_at and not _SMALLEST_ROW <= size_bytes <= _LONGEST_ROW):
                raise self._corrupt("no row of the table begins here", position + at)
            if not data_at and len(head) > _LONGEST_SIZE:
                raise self._corrupt("a row of the table is too long", position + at)
            if not data_at or at + data_at + size_bytes > length:
                break
            at += data_at + size_bytes
        return at

    def _corrupt(self, message: str, position: int, path: str | None = None) -> Corrupt:
        shown = None if path is None else shown_path(path)
        return Corrupt(message, path=shown, chunk=self._archive.name, byte=position)


def _size_of(head: bytes) -> tuple[int, int]:
    """Where the data of a field begin whose first bytes these are, and their size; 0 if its varint goes on."""
    size_bytes = 0
    for at, byte in enumerate(head[1:]):
        size_bytes |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return at + 2, size_bytes
    return 0, 0


def _zero_records(entry: Entry) -> int:
    decoding = parse_decoding(entry.decoding or "")
    return 0 if decoding is None else decoding.zero_records

"""Reads the table at the end of a DataBundle that cafcat wrote: rows of keys and values, 256 KiB at a time."""

from collections.abc import Iterator
from typing import Any, Final

from cafcat.errors import Corrupt, shown_path
from cafcat.formats.base import RandomReader
from cafcat.formats.databundle.decoding import parse_decoding
from cafcat.formats.databundle.layout import BUNDLE_CONFIG, SHARD_METADATA, Trailer, parse_file_key
from cafcat.formats.databundle.messages import FILE_TYPE_URL, REGULAR, messages
from cafcat.formats.repeats import SupersededNames
from cafcat.model import Entry
from cafcat.support.checksums import crc32c

__all__ = ["Table"]

_WINDOW_BYTES: Final = 256 << 10
_LONGEST_ROW: Final = 64 << 10
"""Largest row in bytes, without its tag and its size."""
_LONGEST_SIZE: Final = 3
"""Largest size in bytes of the varint that holds the size of a row."""
_ROW_TAG: Final = 0x0A
"""Protobuf tag of a row in BundleMetadataTable."""
_SMALLEST_ROW: Final = 4
"""Smallest row in bytes, without its tag and its size. Smaller rows are refused, because a window could have very
many of them."""


class Table:
    """The table at the end of a DataBundle that cafcat wrote, which lists its files and records.

    Memory: windows of 256 KiB with their rows, and the memory of SupersededNames.
    """

    def __init__(self, archive: RandomReader, trailer: Trailer, end: int) -> None:
        """Prepare to read the table. This reads no bytes.

        Args:
            archive: the archive.
            trailer: the trailer of the archive.
            end: end of the table in bytes, where the trailer begins.
        """
        self._archive = archive
        self._trailer = trailer
        self._end = end
        self._crc32c: int | None = None
        """CRC-32C of the windows that were read so far, while the table is checked."""

    def entries(self) -> Iterator[Entry]:
        """Return the entries of the files in the order of the table. If a path is repeated, only its last entry.

        The call itself reads the whole table, and checks the form of the rows, the names of the files, and the
        CRC-32C of the table. The iterator reads the table again, and checks everything else in each row.

        Raises:
            Corrupt: the checksum of the table is wrong, or a row is invalid. Raised by the call or by the iterator.
            TemporaryFileFailed: the temporary file for the names failed. Only a table with at least 524,288 names
                that do not all ascend needs one.
        """
        superseded = None if self._ascends() else SupersededNames(self._names())
        entries = self._entries()
        if not superseded:
            return entries
        return (entry for ordinal, entry in enumerate(entries) if ordinal not in superseded)

    def _ascends(self) -> bool:
        """Read the whole table and check its CRC-32C. Return True if all names ascend, so that none is repeated."""
        last, ascends = b"", True
        self._crc32c = 0
        for name in self._names():
            ascends = ascends and last < name
            last = name
        found, self._crc32c = self._crc32c, None
        if found != self._trailer.crc32c:
            message = (
                f"the table of metadata is damaged: its CRC-32C is {found:08x}, expected {self._trailer.crc32c:08x}"
            )
            raise self._corrupt(message, self._trailer.table_start)
        return ascends

    def _names(self) -> Iterator[bytes]:
        for key, _, position in self._rows():
            path = self._path_of(key, position)
            if path is not None:
                yield path.encode()

    def _path_of(self, key: bytes, position: int) -> str | None:
        try:
            return parse_file_key(key)
        except ValueError as error:
            raise self._corrupt(f"a row of the table has an invalid file name: {error}", position) from error

    def _entries(self) -> Iterator[Entry]:
        data_end, zero_records = self._trailer.data_start, 0
        for key, value, position in self._rows():
            path = self._path_of(key, position)
            if path is None:
                zero_records += self._is_zero_record(key, value, position)
                continue
            entry = self._entry(path, value, position)
            if not data_end <= entry.start_byte <= entry.end_byte <= self._trailer.table_start:
                message = f"the span [{entry.start_byte}, {entry.end_byte}) cannot be that of a file"
                raise self._corrupt(message, position, entry.path)
            data_end = entry.end_byte
            zero_records -= _zero_records(entry)
            if zero_records < 0:
                raise self._corrupt("the file has more zero records than the table", position, entry.path)
            yield entry

    def _is_zero_record(self, key: bytes, value: bytes, position: int) -> bool:
        if key[0] == SHARD_METADATA:
            return bool(self._parse(messages().RecordMetadata, value, position).all_zeros)
        if key != bytes([BUNDLE_CONFIG]):
            raise self._corrupt(f"a row of the table has a key of the unknown kind {key[0]}", position)
        return False

    def _entry(self, path: str, value: bytes, position: int) -> Entry:
        metadata = self._parse(messages().FileMetadata, value, position)
        if metadata.type != REGULAR or metadata.user_data.type_url != FILE_TYPE_URL:
            raise self._corrupt("cafcat did not write the row of this file", position, path)
        file = self._parse(messages().BundleFile, metadata.user_data.value, position)
        modified_ns = file.modified_ns if file.HasField("modified_ns") else None
        size_bytes, span = metadata.uncompressed_size, (file.start_byte, file.end_byte)
        if not size_bytes and not file.decoding and span[0] == span[1]:
            return Entry(path, *span, metadata.crc32c, modified_ns)
        if not size_bytes or parse_decoding(file.decoding) is None:
            raise self._corrupt("the decoding of the file is invalid", position, path)
        return Entry(path, *span, metadata.crc32c, modified_ns, size_bytes, file.decoding)

    def _parse(self, kind: Any, data: bytes, position: int) -> Any:
        try:
            return kind.FromString(data)
        except messages().DecodeError as error:
            raise self._corrupt("a row of the table is not a valid message", position) from error

    def _windows(self) -> Iterator[tuple[int, int]]:
        for start in range(self._trailer.table_start, self._end, _WINDOW_BYTES):
            yield start, min(start + _WINDOW_BYTES, self._end)

    def _rows(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield the key and the value of each row, and a position at or before the row, for messages."""
        text, offset = b"", self._trailer.table_start
        for start, end in self._windows():
            text += self._window(start, end)
            cut = self._complete_rows_end(text, offset)
            for row in self._parse(messages().Table, text[:cut], offset).rows:
                if not row.key:
                    raise self._corrupt("a row of the table has no key", offset)
                yield row.key, row.value, offset
            text, offset = text[cut:], offset + cut
        if text:
            raise self._corrupt("the last row of the table is incomplete", offset)

    def _window(self, start: int, end: int) -> bytes:
        data = self._archive.read_at(start, end)
        if self._crc32c is not None:
            self._crc32c = crc32c(data, self._crc32c)
        return data

    def _complete_rows_end(self, text: bytes, position: int) -> int:
        """Return the offset in `text` after its last complete row.

        Args:
            text: a part of the table that begins with a row.
            position: position of `text` in the archive, for messages.

        Raises:
            Corrupt: a row is malformed, smaller than 4 bytes, or larger than 64 KiB.
        """
        offset, length = 0, len(text)
        while offset < length:
            head = text[offset : offset + 1 + _LONGEST_SIZE]
            data_start, size_bytes = _field_size(head)
            if head[0] != _ROW_TAG or (data_start and not _SMALLEST_ROW <= size_bytes <= _LONGEST_ROW):
                raise self._corrupt("no valid row of the table begins here", position + offset)
            if not data_start and len(head) > _LONGEST_SIZE:
                raise self._corrupt("a row of the table is too long", position + offset)
            if not data_start or offset + data_start + size_bytes > length:
                break
            offset += data_start + size_bytes
        return offset

    def _corrupt(self, message: str, position: int, path: str | None = None) -> Corrupt:
        shown = None if path is None else shown_path(path)
        return Corrupt(message, path=shown, chunk=self._archive.name, byte=position)


def _field_size(head: bytes) -> tuple[int, int]:
    """Return the offset of the data in a protobuf field, and the size of the data in bytes.

    If the varint of the size is incomplete, return (0, 0).

    Args:
        head: the first bytes of the field: a tag of one byte, and the varint of the size.
    """
    size_bytes = 0
    for offset, byte in enumerate(head[1:]):
        size_bytes |= (byte & 0x7F) << 7 * offset
        if byte < 0x80:
            return offset + 2, size_bytes
    return 0, 0


def _zero_records(entry: Entry) -> int:
    decoding = parse_decoding(entry.decoding or "")
    return 0 if decoding is None else decoding.zero_records

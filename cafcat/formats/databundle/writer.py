"""Writing a chunk: one shard file with its metadata at its end."""

from collections.abc import Iterator, Sequence
from typing import Final

from cafcat.errors import Refused
from cafcat.formats.base import FinishedArchive, Sink
from cafcat.formats.databundle.bundles.compression import ZLIB
from cafcat.formats.databundle.layout import (
    HEAD_BYTES,
    LARGE_BYTES,
    MOST_OFFSET,
    RECORD_BYTES,
    TRAILER_BYTES,
    config_key,
    config_of,
    head_of,
    trailer,
)
from cafcat.formats.databundle.packing import FilePacking, Packed, RecordPacker, largest_bytes
from cafcat.formats.databundle.rows import LONGEST_RECORD_ROW, file_row, longest_row_bytes, record_row, row
from cafcat.formats.writing import ArchiveWriter, BufferedBytes, FileWriter
from cafcat.model import Entry, NewFile
from cafcat.support.checksums import crc32c
from cafcat.support.spool import Spool

__all__ = ["DataBundleEntryWriter", "DataBundleWriter"]

_TABLE_MEMORY_BYTES: Final = 8 << 20
_TABLE_FLUSH_BYTES: Final = 256 << 10
_BLOCK_BYTES: Final = 1 << 20


class DataBundleWriter(ArchiveWriter):
    """Writes one chunk. The caller gives each path once; of a path given twice readers take the last.

    Memory: 4 MiB of compressed data, 1.25 MiB of a file that comes in blocks, 8 MiB of rows; more rows are in a
    temporary file: some 150 bytes for each file, and 40 for each record. After an error of the sink, and after
    finalize, every call raises.
    """

    def __init__(self, sink: Sink) -> None:
        """Raises NotInstalled if protobuf is not installed."""
        super().__init__()
        self._out = BufferedBytes(sink)
        self._out.write(head_of(ZLIB, metadata_at_eof=True))
        self._packer = RecordPacker(self._out.write, self._note_record)
        self._rows = Spool("a table of metadata", _TABLE_MEMORY_BYTES)
        self._waiting_rows = bytearray(row(config_key(), config_of(ZLIB, 1)))
        self._rows_bytes = len(self._waiting_rows)
        self._rows_crc32c = 0
        self._content_bytes = 0
        self._open: DataBundleEntryWriter | None = None

    def add_all(self, files: Sequence[NewFile], max_bytes: int) -> Sequence[Entry]:
        """Appends whole files, from the first on, as long as it is certain that the chunk, if it were finalized,
        has at most so many bytes: as if the next file could not be compressed. Raises Refused for one of them,
        with nothing written; what the sink raises."""
        self._check_usable()
        for file in files:
            longest_row_bytes(file.path)  # raises Refused
        entries: list[Entry] = []
        with self._break_on_error():
            for path, content, modified_ns, _ in files:
                size_bytes = len(content)
                if self.size_if_finalized(path, size_bytes) > max_bytes or not self.can_add(path, size_bytes):
                    break
                if size_bytes >= LARGE_BYTES:
                    self._packer.end_record()
                packed = self._packer.pack(content)
                entries.append(self._list(path, packed, size_bytes, crc32c(content), modified_ns))
            if entries:
                self._out.flush()
        return entries

    def open(self, path: str, modified_ns: int | None) -> "DataBundleEntryWriter":
        """Begins a file that is written in blocks. Raises Refused, with nothing written."""
        self._check_can_open(path)
        self._open = DataBundleEntryWriter(self, path, modified_ns)
        return self._open

    def size_if_finalized(self, path: str | None = None, size_bytes: int = 0) -> int:
        """Bytes of head, records, table and trailer: never less than it will be. What is written counts as it is;
        one more file, and the one being written, as if nothing of them could be compressed. Raises Refused."""
        self._check_not_ended()
        size = self._packer.most_end + self._rows_bytes + TRAILER_BYTES
        if self._open is not None:
            size += _largest(self._open.path, self._open.held_bytes)
        return size if path is None else size + _largest(path, size_bytes)

    def can_add(self, path: str, size_bytes: int) -> bool:
        """False if its data before compression would have more than 2^62 bytes. Raises Refused."""
        self._check_not_ended()
        longest_row_bytes(path)
        return self._packer.offset + size_bytes <= MOST_OFFSET

    def finalize(self) -> FinishedArchive:
        """Writes table and trailer. Raises InvalidInput while a file is open; what the sink raises."""
        self._check_usable()
        with self._break_on_error():
            self._packer.end_record()
            start = self._packer.position
            checksum = 0
            for block in self._tail(start):
                checksum = crc32c(block, checksum)
                self._out.write(block)
            self._out.flush()
        self._mark_finished()
        end = start + self._rows_bytes
        size_bytes = end + TRAILER_BYTES
        return FinishedArchive(size_bytes, start, end, self.file_count, self._content_bytes, checksum)

    def _tail(self, start: int) -> Iterator[bytes]:
        """What stands behind the records."""
        self._spool_rows()
        with self._rows:
            yield from self._rows.blocks_from(0, _BLOCK_BYTES)
        yield trailer(start, self._rows_crc32c)

    def _list(self, path: str, packed: Packed, size_bytes: int, checksum: int, modified_ns: int | None) -> Entry:
        self._add_row(file_row(path, packed, size_bytes, checksum, modified_ns))
        self.file_count += 1
        self._content_bytes += size_bytes
        content_bytes = None if packed.decoding is None else size_bytes
        start, end, _, decoding = packed
        return Entry(path, start, end, checksum, modified_ns, content_bytes, decoding)

    def _note_record(self, offset: int, position: int | None) -> None:
        self._add_row(record_row(offset, None if position is None else position - HEAD_BYTES))

    def _add_row(self, encoded: bytes) -> None:
        self._waiting_rows += encoded
        self._rows_bytes += len(encoded)
        if len(self._waiting_rows) >= _TABLE_FLUSH_BYTES:
            self._spool_rows()

    def _spool_rows(self) -> None:
        rows = bytes(self._waiting_rows)
        self._rows.write(rows)
        self._rows_crc32c = crc32c(rows, self._rows_crc32c)
        self._waiting_rows.clear()

    def _full_error(self, path: str) -> Refused:
        return Refused(f"the chunk is full: its data cannot exceed {MOST_OFFSET:,} bytes", path=path)


def _largest(path: str, size_bytes: int) -> int:
    records = size_bytes // RECORD_BYTES + 2
    return largest_bytes(size_bytes) + records * LONGEST_RECORD_ROW + longest_row_bytes(path)


class DataBundleEntryWriter(FileWriter[DataBundleWriter]):
    """One file being written in blocks. Made by DataBundleWriter.open. Up to 1 MiB of it is kept: a file that is
    larger begins a record of its own."""

    def __init__(self, writer: DataBundleWriter, path: str, modified_ns: int | None) -> None:
        super().__init__(writer, path, modified_ns)
        self._held = bytearray()
        self._packing: FilePacking | None = None
        self._size_bytes = 0

    @property
    def held_bytes(self) -> int:
        """That are in no record yet."""
        return len(self._held)

    def write(self, block: bytes) -> None:
        """Appends. What the sink raises breaks the whole archive."""
        self._check_open()
        self._checksum = crc32c(block, self._checksum)
        self._size_bytes += len(block)
        view = memoryview(block)
        with self._writer._break_on_error():
            while view:
                part = view[:LARGE_BYTES]
                view = view[LARGE_BYTES:]
                self._held += part
                if self._packing is not None or len(self._held) >= LARGE_BYTES:
                    self._put_records()

    def _put_records(self) -> None:
        """All that are whole."""
        if self._packing is None:
            self._writer._packer.end_record()
            self._packing = self._writer._packer.begin()
        at = 0
        while len(self._held) - at >= RECORD_BYTES:
            self._packing.piece(bytes(self._held[at : at + RECORD_BYTES]))
            at += RECORD_BYTES
        del self._held[:at]
        self._writer._out.flush()

    def close(self) -> Entry:
        """Ends the file."""
        self._check_open()
        writer = self._writer
        writer._open = None
        with writer._break_on_error():
            entry = writer._list(self.path, self._packed(), self._size_bytes, self._checksum, self._modified_ns)
            writer._out.flush()
        return entry

    def _packed(self) -> Packed:
        rest = bytes(self._held)
        if self._packing is None:
            return self._writer._packer.pack(rest)
        if rest:
            self._packing.piece(rest)
        return self._packing.end()

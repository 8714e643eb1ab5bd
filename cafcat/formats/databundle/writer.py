"""Writes a DataBundle: one shard file with its table of metadata at its end."""

from collections.abc import Iterator, Sequence

from cafcat.errors import Refused
from cafcat.formats.base import FinishedArchive, Sink
from cafcat.formats.databundle.bundles.compression import ZLIB
from cafcat.formats.databundle.layout import (
    LARGE_BYTES,
    MAX_OFFSET,
    RECORD_BYTES,
    TRAILER_BYTES,
    encode_head,
    trailer,
)
from cafcat.formats.databundle.packing import FilePacking, RecordPacker, max_packed_bytes
from cafcat.formats.databundle.rows import MAX_RECORD_ROW_BYTES, PackedFile, file_row, max_row_bytes
from cafcat.formats.databundle.table_writer import TableWriter
from cafcat.formats.writing import ArchiveWriter, BufferedBytes, FileWriter
from cafcat.model import Entry, NewFile
from cafcat.support.checksums import crc32c

__all__ = ["DataBundleEntryWriter", "DataBundleWriter"]


class DataBundleWriter(ArchiveWriter):
    """Writes one DataBundle: a shard file of compressed records.

    The caller must add each path only once; if a path is repeated, readers return its last file.

    Memory: 4 MiB of compressed data, up to 2 MiB of a file that is written in blocks, 8 MiB of rows. More rows are
    in a temporary file: some 150 bytes for each file, and 40 for each record.

    After an error while data was written, every method raises StoreFailed. After `finalize`, every method raises
    InvalidInput.
    """

    def __init__(self, sink: Sink) -> None:
        """Prepare to write an archive to `sink`.

        Raises:
            NotInstalled: protobuf is not installed.
        """
        super().__init__()
        self._out = BufferedBytes(sink)
        self._out.write(encode_head(ZLIB, metadata_at_eof=True))
        self._table = TableWriter()
        self._packer = RecordPacker(self._out, self._table)
        self._content_bytes = 0
        self._open: DataBundleEntryWriter | None = None

    def add_all(self, files: Sequence[NewFile], max_bytes: int) -> Sequence[Entry]:
        """Append whole files, up to the first one that may not fit, and return their entries; see `Writer.add_all`.

        A file fits if the archive would not be too large even if the file could not be compressed.

        Raises:
            Refused: the name of a file cannot be stored; no bytes were written. Errors of the sink pass through.
        """
        self._check_usable()
        for file in files:
            max_row_bytes(file.path)  # raises Refused
        entries: list[Entry] = []
        with self._break_on_error():
            for path, content, modified_ns, _ in files:
                size_bytes = len(content)
                if self.size_if_finalized(path, size_bytes) > max_bytes or not self.can_add(path, size_bytes):
                    break
                if size_bytes >= LARGE_BYTES:
                    self._packer.end_record()
                packed = self._packer.pack(content)
                entries.append(self._add_entry(path, packed, size_bytes, crc32c(content), modified_ns))
            if entries:
                self._out.flush()
        return entries

    def open(self, path: str, modified_ns: int | None) -> "DataBundleEntryWriter":
        """Begin a file that is written in blocks, and return its writer.

        Raises:
            Refused: the name cannot be stored, or the archive is full. No bytes were written.
            InvalidInput: another file of this archive is still open.
        """
        self._check_can_open(path)
        self._open = DataBundleEntryWriter(self, path, modified_ns)
        return self._open

    def size_if_finalized(self, path: str | None = None, size_bytes: int = 0) -> int:
        """Return an upper bound for the size of the archive in bytes if it were finalized now; see `Writer`.

        Written data counts with its real size. One more file, and the buffered part of the file being written,
        count as if they could not be compressed.

        Raises:
            Refused: the name `path` cannot be stored.
        """
        self._check_not_ended()
        size = self._packer.max_end + self._table.size_bytes + TRAILER_BYTES
        if self._open is not None:
            size += _max_file_bytes(self._open.path, self._open.buffered_bytes)
        return size if path is None else size + _max_file_bytes(path, size_bytes)

    def can_add(self, path: str, size_bytes: int) -> bool:
        """Return False if one more file would make the data before compression exceed 2^62-1 bytes.

        Raises:
            Refused: the name `path` cannot be stored.
        """
        self._check_not_ended()
        max_row_bytes(path)
        return self._packer.offset + size_bytes <= MAX_OFFSET

    def finalize(self) -> FinishedArchive:
        """Write the table and the trailer, and return the sizes of the archive.

        Raises:
            InvalidInput: a file is still open, or the archive is finished already. Errors of the sink pass through.
            TemporaryFileFailed: the temporary file of the table failed.
        """
        self._check_usable()
        with self._break_on_error():
            self._packer.end_record()
            start = self._packer.position
            checksum = 0
            for block in self._tail(start):
                checksum = crc32c(block, checksum)
                self._out.write(block)
            self._out.flush()
        self._ended = "finished"
        end = start + self._table.size_bytes
        size_bytes = end + TRAILER_BYTES
        return FinishedArchive(size_bytes, start, end, self.file_count, self._content_bytes, checksum)

    def _tail(self, start: int) -> Iterator[bytes]:
        """Yield the bytes after the records, which end at `start`: table and trailer."""
        yield from self._table.blocks()
        yield trailer(start, self._table.crc32c)

    def _add_entry(
        self, path: str, packed: PackedFile, size_bytes: int, checksum: int, modified_ns: int | None
    ) -> Entry:
        self._table.add(file_row(path, packed, size_bytes, checksum, modified_ns))
        self.file_count += 1
        self._content_bytes += size_bytes
        content_bytes = None if packed.decoding is None else size_bytes
        start, end, _, decoding = packed
        return Entry(path, start, end, checksum, modified_ns, content_bytes, decoding)

    def _full_error(self, path: str) -> Refused:
        message = f"the chunk is full: its limit is {MAX_OFFSET:,} bytes of data before compression"
        return Refused(message, path=path)


def _max_file_bytes(path: str, size_bytes: int) -> int:
    records = size_bytes // RECORD_BYTES + 2
    return max_packed_bytes(size_bytes) + records * MAX_RECORD_ROW_BYTES + max_row_bytes(path)


class DataBundleEntryWriter(FileWriter[DataBundleWriter]):
    """Writes one file of a DataBundle in blocks. Created by `DataBundleWriter.open`.

    Less than 1 MiB is buffered between calls, because a file of 1 MiB or more must begin a new record.
    """

    def __init__(self, writer: DataBundleWriter, path: str, modified_ns: int | None) -> None:
        """Prepare to write a file.

        Args:
            writer: the writer of the archive.
            path: name of the entry.
            modified_ns: modification time in nanoseconds since 1970-01-01 UTC, or None.
        """
        super().__init__(writer, path, modified_ns)
        self._buffer = bytearray()
        self._packing: FilePacking | None = None
        self._size_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes of the file that are buffered and do not belong to a record."""
        return len(self._buffer)

    def write(self, block: bytes) -> None:
        """Append a block to the file. After an error of the sink, the whole archive cannot be used."""
        self._check_open()
        self._checksum = crc32c(block, self._checksum)
        self._size_bytes += len(block)
        view = memoryview(block)
        with self._writer._break_on_error():
            while view:
                part = view[:LARGE_BYTES]
                view = view[LARGE_BYTES:]
                self._buffer += part
                if self._packing is not None or len(self._buffer) >= LARGE_BYTES:
                    self._write_records()

    def _write_records(self) -> None:
        """Write all complete records of the buffer. The first call begins a new record for the file."""
        if self._packing is None:
            self._writer._packer.end_record()
            self._packing = self._writer._packer.begin()
        offset = 0
        while len(self._buffer) - offset >= RECORD_BYTES:
            self._packing.add_piece(bytes(self._buffer[offset : offset + RECORD_BYTES]))
            offset += RECORD_BYTES
        del self._buffer[:offset]
        self._writer._out.flush()

    def close(self) -> Entry:
        """Write the rest of the file, and return its entry. Errors of the sink pass through."""
        self._check_open()
        writer = self._writer
        writer._open = None
        with writer._break_on_error():
            entry = writer._add_entry(
                self.path, self._packed(), self._size_bytes, self._checksum, self._modified_ns
            )
            writer._out.flush()
        return entry

    def _packed(self) -> PackedFile:
        rest = bytes(self._buffer)
        if self._packing is None:
            return self._writer._packer.pack(rest)
        if rest:
            self._packing.add_piece(rest)
        return self._packing.finish()

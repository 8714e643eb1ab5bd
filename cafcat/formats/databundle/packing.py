"""Packs files into the records of a DataBundle that cafcat writes.

Data is compressed as it arrives, so that the span of a file is known once it is written.

A record is one zlib stream (RFC 1950), as in the published design. After each file the compressor is flushed fully
(Z_FULL_FLUSH). The next file then begins at a byte boundary and can be inflated without the data before it.
"""

import zlib
from typing import Final

from cafcat.formats.databundle.decoding import MAX_ZERO_RUNS, decoding_text
from cafcat.formats.databundle.layout import HEAD_BYTES, RECORD_BYTES, ZEROS, padding_after
from cafcat.formats.databundle.rows import PackedFile
from cafcat.formats.databundle.table_writer import TableWriter
from cafcat.formats.writing import BufferedBytes

__all__ = ["FilePacking", "RecordPacker", "max_packed_bytes"]

_RECORD_OVERHEAD_BYTES: Final = 4096 + 64
"""Upper bound in bytes for padding, head and end of a record, and for the end of the record before it."""
_FLUSH_BYTES: Final = 64
"""Upper bound in bytes for the flush after a file."""


def max_packed_bytes(size_bytes: int) -> int:
    """Return an upper bound in bytes for the space that a file of `size_bytes` bytes takes in records.

    It includes the end of the last record, and the overhead of data that cannot be compressed.
    """
    records = size_bytes // RECORD_BYTES + 2
    return size_bytes + (size_bytes >> 7) + _FLUSH_BYTES + records * _RECORD_OVERHEAD_BYTES


class RecordPacker:
    """Compresses files into records, and writes these from position 4096 of the archive on.

    After an error of the sink, the packer cannot be used.

    Attributes:
        position: current position in the archive in bytes.
        offset: current offset in the data of all records, in bytes before compression.
        open_bytes: number of bytes in the open record, before compression.
    """

    def __init__(self, out: BufferedBytes, table: TableWriter) -> None:
        """Prepare to write the first record.

        Args:
            out: writes to the archive.
            table: receives a row for each record.
        """
        self._out = out
        self._table = table
        self._deflater: zlib._Compress | None = None
        self.position = HEAD_BYTES
        self.offset = 0
        self.open_bytes = 0

    @property
    def max_end(self) -> int:
        """Upper bound for the position at which the records end, in bytes, if no more data is added."""
        return self.position if self._deflater is None else self.position + _RECORD_OVERHEAD_BYTES

    def pack(self, content: bytes) -> PackedFile:
        """Append a whole file, which is in memory, and return its position and decoding."""
        file = self.begin()
        position = 0
        while position < len(content):
            piece = content[position : position + file.space_bytes]
            file.add_piece(piece)
            position += len(piece)
        return file.finish()

    def begin(self) -> "FilePacking":
        """Begin a file, and return the object that packs it in pieces. Only one file at a time may be packed."""
        return FilePacking(self)

    def add_piece(self, data: bytes) -> None:
        """Append data to the open record, or to a new record if none is open. The data must fit into the record."""
        if self._deflater is None:
            self._table.add_record(self.offset, self.position)
            self._deflater = zlib.compressobj()
        self._write(self._deflater.compress(data))
        self.offset += len(data)
        self.open_bytes += len(data)
        if self.open_bytes == RECORD_BYTES:
            self.end_record()

    def add_zero_record(self) -> None:
        """Append a record of 256 KiB of zeros, which has no bytes in the archive. No other record may be open."""
        self._table.add_record(self.offset, None)
        self.offset += RECORD_BYTES

    def flush(self) -> None:
        """Flush the compressor of the open record, if any, so that the next data can be inflated on its own."""
        if self._deflater is not None:
            self._write(self._deflater.flush(zlib.Z_FULL_FLUSH))

    def end_record(self) -> None:
        """End the open record and write its padding, if a record is open."""
        if self._deflater is not None:
            self._write(self._deflater.flush())
            self._write(bytes(padding_after(self.position)))
            self._deflater = None
            self.open_bytes = 0

    def _write(self, data: bytes) -> None:
        self.position += len(data)
        self._out.write(data)


class FilePacking:
    """Packs one file in pieces, one for each record. Created by `RecordPacker.begin`."""

    def __init__(self, packer: RecordPacker) -> None:
        self._packer = packer
        self._start = packer.position
        self._first_offset = packer.open_bytes
        self._runs: list[tuple[int, int]] = []
        self._pieces = 0
        self._offset = packer.offset

    @property
    def space_bytes(self) -> int:
        """Size in bytes that the next piece must have to fill its record. The file's last piece may be smaller."""
        return RECORD_BYTES - self._packer.open_bytes

    def add_piece(self, data: bytes) -> None:
        """Append the next piece of the file.

        A piece that is a complete record of zeros is stored without bytes, if it belongs to one of the first 24
        runs of such pieces in the file. Zeros in further runs are stored as other data.
        """
        if data == ZEROS and (len(self._runs) < MAX_ZERO_RUNS or self._continues_run()):
            self._packer.add_zero_record()
            self._count_zero_record()
        else:
            self._packer.add_piece(data)
        self._pieces += 1

    def _continues_run(self) -> bool:
        return bool(self._runs) and sum(self._runs[-1]) == self._pieces

    def _count_zero_record(self) -> None:
        if self._continues_run():
            first, count = self._runs[-1]
            self._runs[-1] = first, count + 1
        else:
            self._runs.append((self._pieces, 1))

    def finish(self) -> PackedFile:
        """Finish the file and return its position and decoding. An empty file has an empty span and no decoding."""
        packer = self._packer
        if not self._pieces:
            return PackedFile(self._start, self._start, self._offset, None)
        packer.flush()
        return PackedFile(self._start, packer.position, self._offset, decoding_text(self._first_offset, self._runs))

"""Writes a ChunkIO archive: one or more records for each file, and the index in records at the end."""

from collections.abc import Sequence
from typing import Final

from cafcat.formats.base import FinishedArchive, Sink
from cafcat.formats.chunkio.decoding import PIECES
from cafcat.formats.chunkio.metering import MAX_POSITION, offset_to_position, position_to_offset
from cafcat.formats.chunkio.pieces import (
    PIECE_BYTES,
    end_mark,
    file_mark,
    finalized_size,
    index_mark,
    payload_bytes,
    pieces_end,
)
from cafcat.formats.chunkio.records_writer import record_bytes
from cafcat.formats.index_text import MAX_INDEX_BYTES, entry_text, longest_text_bytes
from cafcat.formats.writing import FileWriter, IndexedWriter
from cafcat.model import Entry, NewFile
from cafcat.support.checksums import crc32c

__all__ = ["MAX_INDEX_BYTES", "ChunkIoEntryWriter", "ChunkIoWriter"]

_FIRST_PIECE_MARK: Final = file_mark(0)
_Parts = list[bytes | memoryview]


class ChunkIoWriter(IndexedWriter):
    """Writes one ChunkIO archive. The caller must add each path only once; otherwise readers refuse the archive.

    The size and the hash of a record precede its content, so a record cannot be streamed. Therefore files are
    written in pieces of 1 MiB, and one piece of a file that is written in blocks is buffered. Memory for the index:
    8 MiB, the rest is in a temporary file.

    After an error of the sink, or of the temporary file of the index, every method raises StoreFailed. After
    `finalize`, every method raises InvalidInput.
    """

    _INDEX_LABEL = "the chunk's index"

    def __init__(self, sink: Sink, *, max_index_bytes: int = MAX_INDEX_BYTES) -> None:
        """Prepare to write an archive to `sink`.

        Args:
            sink: receives the archive.
            max_index_bytes: largest size of the index in bytes. Tests use smaller values than the limit of the
                format.
        """
        super().__init__(max_index_bytes)
        self._sink = sink
        self._position = 0
        self._open: ChunkIoEntryWriter | None = None

    def add_all(self, files: Sequence[NewFile], max_bytes: int) -> Sequence[Entry]:
        """Append as many whole files as fit, from the first on, and return their entries; see `Writer.add_all`.

        Raises:
            Refused: the name of a file cannot be stored; no bytes were written. Errors of the sink pass through.
        """
        self._check_usable()
        entries: list[Entry] = []
        texts: list[bytes] = []
        end, comma, index_bytes = self._position, self._comma, self._index.size_bytes
        offset = position_to_offset(end)
        for path, content, modified_ns, _ in files:
            size_bytes = len(content)
            offset += payload_bytes(size_bytes)
            start, end = end, offset_to_position(offset)
            entry = Entry(path, start, end, crc32c(content), modified_ns, size_bytes, PIECES)
            text = entry_text(comma, entry)
            index_bytes += len(text)
            if index_bytes > self._max_index_bytes or finalized_size(offset, index_bytes) > max_bytes:
                break
            entries.append(entry)
            texts.append(text)
            comma = b","
        self._write_files(files, entries, texts)
        return entries

    def _write_files(self, files: Sequence[NewFile], entries: Sequence[Entry], texts: Sequence[bytes]) -> None:
        if not texts:
            return
        parts: _Parts = []
        for file, entry in zip(files, entries, strict=False):
            _add_pieces(parts, entry.start_byte, file.content)
        self._write(parts, entries[-1].end_byte)
        self._append(b"".join(texts), len(texts), sum(entry.size_bytes for entry in entries))

    def open(self, path: str, modified_ns: int | None) -> "ChunkIoEntryWriter":
        """Begin a file that is written in blocks, and return its writer.

        Raises:
            Refused: the name cannot be stored, or the archive is full. No bytes were written.
            InvalidInput: another file of this archive is still open.
        """
        self._check_can_open(path)
        self._open = ChunkIoEntryWriter(self, path, modified_ns)
        return self._open

    def size_if_finalized(self, path: str | None = None, size_bytes: int = 0) -> int:
        """Return an upper bound for the size of the archive in bytes if it were finalized now; see `Writer`.

        The result is exact for the files that are finished. One more file, and the file being written, count with
        the longest entry that the index can have for their name. Bytes of abandoned files are included.

        Raises:
            Refused: the name `path` cannot be stored.
        """
        self._check_not_ended()
        position, index_bytes = self._position, self._index_bytes()
        if self._open is not None:
            position = pieces_end(position, self._open.pending_bytes)
        if path is not None:
            position = pieces_end(position, size_bytes)
            index_bytes += longest_text_bytes(path)
        return finalized_size(position_to_offset(position), index_bytes)

    def can_add(self, path: str, size_bytes: int) -> bool:
        """Return False if one more file could make the index exceed its limit, or the archive 2^63-1 bytes.

        Raises:
            Refused: the name `path` cannot be stored.
        """
        self._check_not_ended()
        index_bytes = self._index_bytes() + longest_text_bytes(path)
        return index_bytes <= self._max_index_bytes and self.size_if_finalized(path, size_bytes) <= MAX_POSITION

    def finalize(self) -> FinishedArchive:
        """Write the index and the end mark, and return the sizes of the archive.

        Raises:
            InvalidInput: a file is still open, or the archive is finished already. Errors of the sink pass through.
            StoreFailed: the temporary file of the index failed.
        """
        self._check_usable()
        index_begin = self._position
        checksum = 0
        with self._break_on_error():
            for piece in self._index.blocks():
                begin = self._position
                block = b"".join(record_bytes(begin, index_mark(begin), piece))
                checksum = crc32c(block, checksum)
                self._write([block], begin + len(block))
        index_end = self._position
        mark = b"".join(record_bytes(index_end, end_mark(index_begin), b""))
        self._write([mark], index_end + len(mark))
        self._ended = "finished"
        checksum = crc32c(mark, checksum)
        return FinishedArchive(
            self._position, index_begin, index_end, self.file_count, self._content_bytes, checksum
        )

    def _write(self, parts: _Parts, end: int) -> None:
        """Write the parts of one or more records to the sink. `end` is the position after them."""
        with self._break_on_error():
            self._sink.write(b"".join(parts))
        self._position = end


def _add_pieces(parts: _Parts, begin: int, content: bytes) -> None:
    """Append the records of a whole file to `parts`, as they are written at the position `begin`."""
    if len(content) <= PIECE_BYTES:
        parts += record_bytes(begin, _FIRST_PIECE_MARK, content)
        return
    for start in range(0, len(content), PIECE_BYTES):
        piece = content[start : start + PIECE_BYTES]
        parts += record_bytes(begin, file_mark(start), piece)
        begin = pieces_end(begin, len(piece))


class ChunkIoEntryWriter(FileWriter[ChunkIoWriter]):
    """Writes one file of a ChunkIO archive in blocks. Created by `ChunkIoWriter.open`."""

    def __init__(self, writer: ChunkIoWriter, path: str, modified_ns: int | None) -> None:
        """Prepare to write a file at the current end of the archive.

        Args:
            writer: the writer of the archive.
            path: name of the entry.
            modified_ns: modification time in nanoseconds since 1970-01-01 UTC, or None.
        """
        super().__init__(writer, path, modified_ns)
        self._start = writer._position
        self._piece = bytearray()
        self._written = 0

    @property
    def pending_bytes(self) -> int:
        """Number of bytes of the file that are buffered, and not written to the archive yet."""
        return len(self._piece)

    def write(self, block: bytes) -> None:
        """Append a block to the file. After an error of the sink, the archive is broken; see `ChunkIoWriter`."""
        self._check_open()
        self._checksum = crc32c(block, self._checksum)
        view = memoryview(block)
        while view:
            space = PIECE_BYTES - len(self._piece)
            self._piece += view[:space]
            view = view[space:]
            if len(self._piece) == PIECE_BYTES:
                self._write_piece()

    def _write_piece(self) -> None:
        begin = self._writer._position
        parts = record_bytes(begin, file_mark(self._written), bytes(self._piece))
        self._writer._write(parts, pieces_end(begin, len(self._piece)))
        self._written += len(self._piece)
        self._piece.clear()

    def close(self) -> Entry:
        """Finish the file and return its entry.

        Raises:
            Refused: the index of the archive has no space for the entry. Errors of the sink pass through.
        """
        self._check_open()
        writer = self._writer
        if self._piece or not self._written:
            self._write_piece()
        end = writer._position
        writer._open = None
        entry = Entry(self.path, self._start, end, self._checksum, self._modified_ns, self._written, PIECES)
        text = entry_text(writer._comma, entry)
        if writer._index.size_bytes + len(text) > writer._max_index_bytes:
            raise writer._full_error(self.path)
        writer._append(text, 1, self._written)
        return entry

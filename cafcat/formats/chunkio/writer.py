"""Writing a ChunkIO chunk: a record or more for each file, the index in records at the end."""

from collections.abc import Sequence
from typing import Final

from cafcat.formats.base import FinishedArchive, Sink
from cafcat.formats.chunkio.decoding import PIECES
from cafcat.formats.chunkio.metering import MAX_POSITION, offset_at, position_of
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

_FIRST: Final = file_mark(0)
_Parts = list[bytes | memoryview]


class ChunkIoWriter(IndexedWriter):
    """Writes one chunk. The caller gives each path once: a path given twice makes two entries of that name,
    of which readers take the last.

    A record cannot be streamed, as its length and hash come first; so a file is written in pieces of 1 MiB, and of
    one that comes in blocks a piece is kept in memory. The index: 8 MiB, beyond that a temporary file. After an
    error of the sink, and after finalize, every call raises.
    """

    _INDEX_LABEL = "the chunk's index"

    def __init__(self, sink: Sink, *, max_index_bytes: int = MAX_INDEX_BYTES) -> None:
        """max_index_bytes: when the chunk is full; a smaller value than the format's serves tests."""
        super().__init__(max_index_bytes)
        self._sink = sink
        self._position = 0
        self._open: ChunkIoEntryWriter | None = None

    def add_all(self, files: Sequence[NewFile], max_bytes: int) -> Sequence[Entry]:
        """Appends whole files, from the first on, as long as the chunk, if it were finalized, has at most so many
        bytes, and its index has room. Raises Refused for one of them, with nothing written; what the sink
        raises."""
        self._check_usable()
        entries: list[Entry] = []
        texts: list[bytes] = []
        end, comma, index_bytes = self._position, self._comma, self._index.size_bytes
        offset = offset_at(end)
        for path, content, modified_ns, _ in files:
            size_bytes = len(content)
            offset += payload_bytes(size_bytes)
            start, end = end, position_of(offset)
            entry = Entry(path, start, end, crc32c(content), modified_ns, size_bytes, PIECES)
            text = entry_text(comma, entry)
            index_bytes += len(text)
            if index_bytes > self._max_index_bytes or finalized_size(offset, index_bytes) > max_bytes:
                break
            entries.append(entry)
            texts.append(text)
            comma = b","
        self._put_all(files, entries, texts)
        return entries

    def _put_all(self, files: Sequence[NewFile], entries: Sequence[Entry], texts: Sequence[bytes]) -> None:
        if not texts:
            return
        parts: _Parts = []
        for file, entry in zip(files, entries, strict=False):
            _add_pieces(parts, entry.start_byte, file.content)
        self._put(parts, entries[-1].end_byte)
        self._append(b"".join(texts), len(texts), sum(entry.size_bytes for entry in entries))

    def open(self, path: str, modified_ns: int | None) -> "ChunkIoEntryWriter":
        """Begins a file that is written in blocks. Raises Refused, with nothing written."""
        self._check_can_open(path)
        self._open = ChunkIoEntryWriter(self, path, modified_ns)
        return self._open

    def size_if_finalized(self, path: str | None = None, size_bytes: int = 0) -> int:
        """Bytes of files, index and end mark. Exact for what is written; one more file, and the one being written,
        count with the longest checksum and time, and with all bytes abandoned so far. Raises Refused."""
        self._check_not_ended()
        position, index_bytes = self._position, self._index_bytes()
        if self._open is not None:
            position = pieces_end(position, self._open.pending_bytes)
        if path is not None:
            position = pieces_end(position, size_bytes)
            index_bytes += longest_text_bytes(path)
        return finalized_size(offset_at(position), index_bytes)

    def can_add(self, path: str, size_bytes: int) -> bool:
        """False if the index would outgrow 4 GiB, or the chunk 2^63 bytes. Raises Refused."""
        self._check_not_ended()
        index_bytes = self._index_bytes() + longest_text_bytes(path)
        return index_bytes <= self._max_index_bytes and self.size_if_finalized(path, size_bytes) <= MAX_POSITION

    def finalize(self) -> FinishedArchive:
        """Writes index and end mark. Raises InvalidInput while a file is open; what the sink raises."""
        self._check_usable()
        index_begin = self._position
        checksum = 0
        with self._break_on_error():
            for piece in self._index.blocks():
                begin = self._position
                block = b"".join(record_bytes(begin, index_mark(begin), piece))
                checksum = crc32c(block, checksum)
                self._put([block], begin + len(block))
        index_end = self._position
        mark = b"".join(record_bytes(index_end, end_mark(index_begin), b""))
        self._put([mark], index_end + len(mark))
        self._mark_finished()
        checksum = crc32c(mark, checksum)
        return FinishedArchive(
            self._position, index_begin, index_end, self.file_count, self._content_bytes, checksum
        )

    def _put(self, parts: _Parts, end: int) -> None:
        """end: the position after them."""
        with self._break_on_error():
            self._sink.write(b"".join(parts))
        self._position = end


def _add_pieces(parts: _Parts, begin: int, content: bytes) -> None:
    """The pieces of a whole file that begins there."""
    if len(content) <= PIECE_BYTES:
        parts += record_bytes(begin, _FIRST, content)
        return
    for start in range(0, len(content), PIECE_BYTES):
        piece = content[start : start + PIECE_BYTES]
        parts += record_bytes(begin, file_mark(start), piece)
        begin = pieces_end(begin, len(piece))


class ChunkIoEntryWriter(FileWriter[ChunkIoWriter]):
    """One file being written in blocks. Made by ChunkIoWriter.open."""

    def __init__(self, writer: ChunkIoWriter, path: str, modified_ns: int | None) -> None:
        super().__init__(writer, path, modified_ns)
        self._start = writer._position
        self._piece = bytearray()
        self._written = 0

    @property
    def pending_bytes(self) -> int:
        """That are not written yet."""
        return len(self._piece)

    def write(self, block: bytes) -> None:
        """Appends. What the sink raises breaks the whole archive."""
        self._check_open()
        self._checksum = crc32c(block, self._checksum)
        view = memoryview(block)
        while view:
            room = PIECE_BYTES - len(self._piece)
            self._piece += view[:room]
            view = view[room:]
            if len(self._piece) == PIECE_BYTES:
                self._put_piece()

    def _put_piece(self) -> None:
        begin = self._writer._position
        parts = record_bytes(begin, file_mark(self._written), bytes(self._piece))
        self._writer._put(parts, pieces_end(begin, len(self._piece)))
        self._written += len(self._piece)
        self._piece.clear()

    def close(self) -> Entry:
        """Ends the file."""
        self._check_open()
        writer = self._writer
        if self._piece or not self._written:
            self._put_piece()
        end = writer._position
        writer._open = None
        entry = Entry(self.path, self._start, end, self._checksum, self._modified_ns, self._written, PIECES)
        text = entry_text(writer._comma, entry)
        if writer._index.size_bytes + len(text) > writer._max_index_bytes:
            raise writer._full_error(self.path)
        writer._append(text, 1, self._written)
        return entry

"""All rows of one chunk, live and retired, in the order of their bytes.

All rows are read from PostgreSQL at once and buffered: up to 8 MiB in memory, more in a temporary file. Reading the
chunk itself may take minutes, and no transaction should stay open for that time.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from struct import Struct
from threading import Condition, Thread
from types import TracebackType
from typing import Final, NamedTuple, Self

from cafcat.catalog.binary_copy import EPOCH_MICROSECONDS, NULL
from cafcat.support.spool import Spool

__all__ = ["COPY_ROWS", "ChunkRow", "ChunkRows", "RowReader"]

_MEMORY_BYTES: Final = 8 << 20
_BLOCK_BYTES: Final = 1 << 20

COPY_ROWS: Final = """
COPY (
    SELECT start_byte, end_byte, crc32c, coalesce(modified_at, '-infinity'), is_live, file_path, content_bytes,
           decoding
    FROM (SELECT start_byte, end_byte, crc32c, modified_at, 1::bigint AS is_live, file_path, content_bytes, decoding
          FROM file_locations WHERE caf_file_id = %(chunk)s
          UNION ALL
          SELECT start_byte, end_byte, crc32c, modified_at, 0::bigint, file_path, content_bytes, decoding
          FROM retired_locations WHERE caf_file_id = %(chunk)s) AS entries
    ORDER BY start_byte, end_byte, file_path
) TO STDOUT (FORMAT BINARY)
"""
"""Statement whose result is the argument of ChunkRows.

It is one statement, so that it sees an entry exactly once even if the entry is being retired or restored.
"""

# PostgreSQL documentation, COPY, "Binary Format": a header of 19 bytes, then the rows. A row is the number of
# fields, then length and bytes of each field. The fields before the path have 8 bytes each. The fields after it are
# NULL in most rows.
_HEAD_BYTES: Final = 19
_ROW: Final = Struct(">6xq4xq4xq4xq4xqi")
_NOTHING: Final = NULL + NULL
_FURTHER_BYTES: Final = len(_NOTHING)
_FURTHER: Final = Struct(">4xqi")
_NO_TIME: Final = -(1 << 63)
"""PostgreSQL's encoding of the time -infinity, which stands for a missing modification time here."""


class ChunkRow(NamedTuple):
    """An entry of a chunk, as the catalog has it.

    Attributes:
        path: Path of the file.
        start_byte: First byte of its span in the chunk.
        end_byte: One past the last byte of its span.
        crc32c: CRC-32C of the file's content.
        modified_us: Modification time in microseconds since 1970 UTC; None if unknown.
        is_live: True if the path points to this entry, false if the entry is retired.
        content_bytes: Size of the decoded file, in bytes; None if the bytes of the span are the file.
        decoding: How the format decodes the span; None if the bytes of the span are the file.
    """

    path: str
    start_byte: int
    end_byte: int
    crc32c: int
    modified_us: int | None
    is_live: bool
    content_bytes: int | None = None
    decoding: str | None = None


_new_tuple: Final = tuple.__new__


class ChunkRows:
    """The rows of a chunk. They can be iterated repeatedly; memory does not depend on the number of rows.

    A thread takes the rows from the server and buffers them, while the caller works with the first ones. Close the
    object, or use it as a context manager.
    """

    def __init__(self, blocks: Generator[bytes, None, None]) -> None:
        """Begin to buffer the rows: up to 8 MiB in memory, more in a temporary file.

        Args:
            blocks: Result of the statement COPY_ROWS. The thread iterates and closes it. An error of it, or of the
                temporary file (TemporaryFileFailed), is raised where its rows would be read.
        """
        self._spool = Spool("the rows of a chunk", _MEMORY_BYTES)
        self._written = 0
        self._is_read = self._is_closed = False
        self._error: BaseException | None = None
        self._changed = Condition()
        self._thread = Thread(target=self._buffer, args=(blocks,), name="cafcat-rows", daemon=True)
        self._thread.start()

    def _buffer(self, blocks: Generator[bytes, None, None]) -> None:
        try:
            with closing(blocks):
                for block in blocks:
                    with self._changed:
                        if self._is_closed and self._written >= _MEMORY_BYTES:
                            break  # few rows cost less than the connection with which psycopg cancels the statement
                        self._spool.seek_end()
                        self._spool.write(block)
                        self._written += len(block)
                        self._changed.notify()
            self._spool.flush()
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the reader
            self._error = error
        with self._changed:
            self._is_read = True
            self._changed.notify()

    def close(self) -> None:
        """Remove the rows, and wait for the end of the thread. Idempotent."""
        self._is_closed = True
        self._thread.join()
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _blocks(self) -> Iterator[bytes]:
        """Yield the rows in blocks of at most 1 MiB, without the header, as soon as the server sent them."""
        at = _HEAD_BYTES
        while block := self._block_at(at):
            at += len(block)
            yield block

    def _block_at(self, at: int) -> bytes:
        """Return a block from this position on; b"" after the last row."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_read or self._written - at >= _BLOCK_BYTES)
            if self._error is not None:
                raise self._error
            self._spool.seek(at)
            return self._spool.read(_BLOCK_BYTES)

    def reader(self) -> "RowReader":
        """Return a reader at the first row."""
        return RowReader(self._blocks())

    def __iter__(self) -> Iterator[ChunkRow]:
        """Yield the rows in the order of start_byte, end_byte and path."""
        text, unpack, head_bytes = b"", _ROW.unpack_from, _ROW.size
        for block in self._blocks():
            text += block
            at, length = 0, len(text)
            while at + head_bytes <= length:
                start, end, crc32c, time, is_live, path_bytes = unpack(text, at)
                path_end = at + head_bytes + path_bytes
                row_end = path_end + _FURTHER_BYTES
                if row_end > length:
                    break
                content_bytes = decoding = None
                if text[path_end:row_end] != _NOTHING:
                    further = _further(text, path_end)
                    if further is None:
                        break
                    content_bytes, decoding, row_end = further
                path = text[at + head_bytes : path_end].decode()
                modified_us = None if time == _NO_TIME else time + EPOCH_MICROSECONDS
                # This has the result of ChunkRow(...) without the cost of a Python call.
                columns = (path, start, end, crc32c, modified_us, is_live == 1, content_bytes, decoding)
                yield _new_tuple(ChunkRow, columns)
                at = row_end
            text = text[at:]


class RowReader:
    """Reads the rows of a chunk one by one. The caller may pass over rows in `text`, by moving `at`.

    Attributes:
        text: Some of the rows, as COPY_ROWS returns them.
        at: Position in the text of the next row.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        """Begin before the first row.

        Args:
            blocks: The rows in blocks, without the header.
        """
        self.text = b""
        self.at = 0
        self._blocks = blocks

    @property
    def is_cut(self) -> bool:
        """True if the text has no whole row at `at`."""
        return _row_at(self.text, self.at) is None

    def fill(self) -> bool:
        """Read further rows into the text, from `at` on. Return False after the last row."""
        block = next(self._blocks, b"")
        if block:
            self.text, self.at = self.text[self.at :] + block, 0
        return bool(block)

    def row(self) -> ChunkRow | None:
        """Return the next row; None after the last one."""
        while (found := _row_at(self.text, self.at)) is None:
            if not self.fill():
                return None
        row, self.at = found
        return row


def _row_at(text: bytes, at: int) -> tuple[ChunkRow, int] | None:
    """Decode the row at an offset. Return it with the offset after it; None if the text ends before its end."""
    if at + _ROW.size > len(text):
        return None
    start, end, crc32c, time, is_live, path_bytes = _ROW.unpack_from(text, at)
    path_end = at + _ROW.size + path_bytes
    row_end = path_end + _FURTHER_BYTES
    content_bytes = decoding = None
    if row_end <= len(text) and text[path_end:row_end] != _NOTHING:
        further = _further(text, path_end)
        if further is None:
            return None
        content_bytes, decoding, row_end = further
    if row_end > len(text):
        return None
    path = text[at + _ROW.size : path_end].decode()
    modified_us = None if time == _NO_TIME else time + EPOCH_MICROSECONDS
    return ChunkRow(path, start, end, crc32c, modified_us, is_live == 1, content_bytes, decoding), row_end


def _further(text: bytes, at: int) -> tuple[int, str, int] | None:
    """Decode the last two fields of a row, content_bytes and decoding, neither of which is NULL.

    Args:
        text: Bytes of the COPY stream.
        at: Offset of the fields in them.

    Returns:
        content_bytes, decoding, and the offset after them; None if `text` ends before the end of both fields.
    """
    if at + _FURTHER.size > len(text):
        return None
    content_bytes, decoding_bytes = _FURTHER.unpack_from(text, at)
    begin = at + _FURTHER.size
    end = begin + decoding_bytes
    return None if end > len(text) else (content_bytes, text[begin:end].decode(), end)

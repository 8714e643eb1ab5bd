"""Reads the index of a ChunkIO archive that cafcat wrote.

The index is found from the end of the archive. The content of its records is parsed as the index of a CAF.
"""

import struct
from collections.abc import Iterator
from typing import Final

from cafcat.errors import CafcatError, Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.caf.reader import CafReader
from cafcat.formats.chunkio.decoding import PIECES
from cafcat.formats.chunkio.metering import end_position, is_position, strip_meters
from cafcat.formats.chunkio.pieces import (
    PIECE_BYTES,
    IndexLayout,
    content_bytes_of,
    end_mark_begin,
    index_begin_of,
    index_mark,
    pieces_end,
)
from cafcat.formats.chunkio.records import HEADER_BYTES, Record, parse_header
from cafcat.formats.chunkio.siphash import siphash
from cafcat.model import Entry

__all__ = ["find_index", "index_entries"]

_FOOTER: Final = struct.Struct("<I")
_MAX_INDEX_BYTES: Final = 0xFFFF_FFFF


def find_index(archive: RandomReader) -> IndexLayout | None:
    """Return the position of the index that cafcat wrote, or None if the archive does not end with an index.

    This takes two reads of at most 56 bytes, at the end of the archive and at the start of the index. The rest of
    the index is not checked. A record may contain another ChunkIO archive. The index of that archive is not
    mistaken for that of `archive`, because pieces of an index include their position.
    """
    begin = end_mark_begin(archive.size_bytes)
    mark = None if begin is None else _record_at(archive, begin)
    if begin is None or mark is None or mark.end != archive.size_bytes:
        return None
    index_begin = index_begin_of(mark.user_data)
    index_bytes = None if index_begin is None else content_bytes_of(index_begin, begin)
    if index_begin is None or index_bytes is None or index_bytes > _MAX_INDEX_BYTES:
        return None
    first = _record_at(archive, index_begin)
    if first is None or first.user_data != index_mark(index_begin):
        return None
    return IndexLayout(index_begin, begin, index_bytes)


def _record_at(archive: RandomReader, begin: int) -> Record | None:
    end = end_position(begin, HEADER_BYTES)
    if not is_position(begin) or end > archive.size_bytes:
        return None
    return parse_header(strip_meters(begin, archive.read_at(begin, end)), begin)


def index_entries(archive: RandomReader, layout: IndexLayout) -> Iterator[Entry]:
    """Yield the entries in the order of the index, each path once; see `CafReader.entries` for its checks.

    Memory: that of CafReader, and two pieces of 1 MiB.

    Raises:
        Corrupt: the index is damaged, or the span of an entry cannot consist of pieces (records of a file).
        Unsupported: the index has another version than 1.0, or a string or number of more than 1 MiB.
        StoreFailed: the temporary file for the names of a large index failed.
    """
    view = _CafView(archive, layout)
    try:
        for path, start, end, checksum, modified_ns, _, _ in CafReader(view).entries():
            size_bytes = content_bytes_of(start, end)
            if size_bytes is None:
                message = f"the span [{start}, {end}) cannot be the records of a file"
                raise Corrupt(message, path=path, chunk=archive.name, byte=start)
            yield Entry(path, start, end, checksum, modified_ns, size_bytes, PIECES)
    except CafcatError as error:
        if not view.reading and error.byte is not None and error.byte > layout.index_begin:
            error.byte = view.position_of(error.byte)
        raise


class _CafView:
    """Shows the index of a ChunkIO archive to CafReader as if it were a CAF. A RandomReader.

    Only the text of the index and a footer exist in the view. The text begins at the position of the first record
    of the index, and has neither headers nor meters.

    Attributes:
        reading: True while a piece of the index is read, and after its reading failed. The `byte` of an error is
            then a position in the archive; otherwise it is a position in the view.
        name: name of the archive.
        size_bytes: size of the view in bytes.
    """

    def __init__(self, archive: RandomReader, layout: IndexLayout) -> None:
        self._archive = archive
        self._layout = layout
        self._text_end = layout.index_begin + layout.index_bytes
        self._cached = -1, b""
        self.reading = False
        self.name = archive.name
        self.size_bytes = self._text_end + _FOOTER.size

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes of `[start_byte, end_byte)` of the view.

        Raises:
            Corrupt: a piece of the index is damaged.
        """
        if start_byte >= self._text_end:
            return _FOOTER.pack(self._layout.index_bytes)[: end_byte - start_byte]
        start, end = start_byte - self._layout.index_begin, end_byte - self._layout.index_begin
        parts = []
        while start < end:
            number, offset = divmod(start, PIECE_BYTES)
            parts.append(self._piece(number)[offset : offset + end - start])
            start += len(parts[-1])
        return b"".join(parts)

    def position_of(self, byte: int) -> int:
        """Convert a position within the text in this view to its position in the archive, in bytes."""
        number, offset = divmod(byte - self._layout.index_begin, PIECE_BYTES)
        return end_position(self._piece_begin(number), HEADER_BYTES + offset)

    def _piece_begin(self, number: int) -> int:
        """Return the position in the archive of the piece of the index with this number, from 0."""
        begin = self._layout.index_begin
        return pieces_end(begin, number * PIECE_BYTES) if number else begin

    def _piece(self, number: int) -> bytes:
        if self._cached[0] != number:
            self.reading = True
            self._cached = number, self._read_piece(number)
            self.reading = False
        return self._cached[1]

    def _read_piece(self, number: int) -> bytes:
        begin = self._piece_begin(number)
        size_bytes = min(PIECE_BYTES, self._layout.index_bytes - number * PIECE_BYTES)
        end = pieces_end(begin, size_bytes)
        payload = strip_meters(begin, self._archive.read_at(begin, end))
        record = parse_header(payload[:HEADER_BYTES], begin)
        content = payload[HEADER_BYTES:]
        if record is None or record.end != end or record.user_data != index_mark(begin):
            raise self._damaged("the header of one of its records is invalid", begin)
        if siphash(content) != record.content_hash:
            raise self._damaged("the content of one of its records does not match the SipHash in the header", begin)
        return content

    def _damaged(self, problem: str, begin: int) -> Corrupt:
        return Corrupt(f"the index is damaged: {problem}", chunk=self.name, byte=begin)

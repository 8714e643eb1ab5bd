"""The index of a chunk that cafcat wrote: found from its end, and its text as CAF's reader reads it."""

import struct
from collections.abc import Iterator
from typing import Final

from cafcat.errors import CafcatError, Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.caf.reader import CafReader
from cafcat.formats.chunkio.decoding import PIECES
from cafcat.formats.chunkio.metering import end_position, is_position, unmetered
from cafcat.formats.chunkio.pieces import (
    PIECE_BYTES,
    Layout,
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
_MOST_BYTES: Final = 0xFFFF_FFFF


def find_index(archive: RandomReader) -> Layout | None:
    """Where the index is, if the archive ends with one: two reads of some 56 bytes, at the end of it and at the
    begin of its index. None too if it is an archive of records into which another chunk was packed: pieces of an
    index say themselves where they are."""
    begin = end_mark_begin(archive.size_bytes)
    mark = None if begin is None else _record_at(archive, begin)
    if begin is None or mark is None or mark.end != archive.size_bytes:
        return None
    index_begin = index_begin_of(mark.user_data)
    index_bytes = None if index_begin is None else content_bytes_of(index_begin, begin)
    if index_begin is None or index_bytes is None or index_bytes > _MOST_BYTES:
        return None
    first = _record_at(archive, index_begin)
    if first is None or first.user_data != index_mark(index_begin):
        return None
    return Layout(index_begin, begin, index_bytes)


def _record_at(archive: RandomReader, begin: int) -> Record | None:
    end = end_position(begin, HEADER_BYTES)
    if not is_position(begin) or end > archive.size_bytes:
        return None
    return parse_header(unmetered(begin, archive.read_at(begin, end)), begin)


def index_entries(archive: RandomReader, layout: Layout) -> Iterator[Entry]:
    """The entries as the index has them, each path once; see CafReader.entries, which checks what can be checked.
    Memory: as there, and two pieces of 1 MiB. Raises Corrupt, also for a span that no pieces have."""
    view = _CafView(archive, layout)
    try:
        for path, start, end, checksum, modified_ns, _, _ in CafReader(view).entries():
            size_bytes = content_bytes_of(start, end)
            if size_bytes is None:
                message = f"[{start}, {end}) cannot be the records of a file"
                raise Corrupt(message, path=path, chunk=archive.name, byte=start)
            yield Entry(path, start, end, checksum, modified_ns, size_bytes, PIECES)
    except CafcatError as error:
        if not view.reading and error.byte is not None and error.byte > layout.index_begin:
            error.byte = view.position_of(error.byte)
        raise


class _CafView:
    """The chunk as if it were CAF: nothing but the text of the index, which begins where its first record does, and
    a footer. A RandomReader."""

    def __init__(self, archive: RandomReader, layout: Layout) -> None:
        self._archive = archive
        self._layout = layout
        self._text_end = layout.index_begin + layout.index_bytes
        self._kept = -1, b""
        self.reading = False
        """Or failed to read: then errors name positions in the file already."""
        self.name = archive.name
        self.size_bytes = self._text_end + _FOOTER.size

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Exactly those bytes. Raises Corrupt if a piece of the index is damaged."""
        if start_byte >= self._text_end:
            return _FOOTER.pack(self._layout.index_bytes)[: end_byte - start_byte]
        start, end = start_byte - self._layout.index_begin, end_byte - self._layout.index_begin
        parts = []
        while start < end:
            number, within = divmod(start, PIECE_BYTES)
            parts.append(self._piece(number)[within : within + end - start])
            start += len(parts[-1])
        return b"".join(parts)

    def position_of(self, byte: int) -> int:
        """Where a byte of this view is in the file, if it is of the text."""
        number, within = divmod(byte - self._layout.index_begin, PIECE_BYTES)
        return end_position(self._piece_begin(number), HEADER_BYTES + within)

    def _piece_begin(self, number: int) -> int:
        """Where a piece of the index begins."""
        begin = self._layout.index_begin
        return pieces_end(begin, number * PIECE_BYTES) if number else begin

    def _piece(self, number: int) -> bytes:
        if self._kept[0] != number:
            self.reading = True
            self._kept = number, self._read_piece(number)
            self.reading = False
        return self._kept[1]

    def _read_piece(self, number: int) -> bytes:
        begin = self._piece_begin(number)
        size_bytes = min(PIECE_BYTES, self._layout.index_bytes - number * PIECE_BYTES)
        end = pieces_end(begin, size_bytes)
        payload = unmetered(begin, self._archive.read_at(begin, end))
        record = parse_header(payload[:HEADER_BYTES], begin)
        content = payload[HEADER_BYTES:]
        if record is None or record.end != end or record.user_data != index_mark(begin):
            raise self._damaged("the header of a record is", begin)
        if siphash(content) != record.content_hash:
            raise self._damaged("the content of a record has another SipHash than its header says:", begin)
        return content

    def _damaged(self, what: str, begin: int) -> Corrupt:
        return Corrupt(f"{what} damaged, and it is of the index", chunk=self.name, byte=begin)

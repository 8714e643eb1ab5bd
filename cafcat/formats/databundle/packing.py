"""Files into records that are deflated as they come, so that each file's place is known when it is written.

A record is one zlib stream (RFC 1950), as in the published design. Behind each file the compressor is flushed
fully (Z_FULL_FLUSH): what follows can be inflated without what was before, and begins with a byte of its own.
"""

import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from cafcat.formats.databundle.decoding import MOST_RUNS, decoding_text
from cafcat.formats.databundle.layout import HEAD_BYTES, RECORD_BYTES, ZEROS, padding_after

__all__ = ["FilePacking", "Packed", "RecordPacker", "largest_bytes"]

_RECORD_OVERHEAD_BYTES: Final = 4096 + 64
"""Padding, head and end of a record; end of the one before."""
_FLUSH_BYTES: Final = 64


def largest_bytes(size_bytes: int) -> int:
    """That many bytes of a file take no more in records, the end of the last one included. What cannot be deflated
    is stored in blocks with some bytes before each."""
    records = size_bytes // RECORD_BYTES + 2
    return size_bytes + (size_bytes >> 7) + _FLUSH_BYTES + records * _RECORD_OVERHEAD_BYTES


class Packed(NamedTuple):
    """Where a file came to be: its span, and its offset in all data before compression; decoding as in Entry."""

    start_byte: int
    end_byte: int
    offset: int
    decoding: str | None


class RecordPacker:
    """Writes records from position 4096 on, through `put`. Tells `begun` of each: its offset in the uncompressed
    data, and its position in the file, or None for zeros without bytes. What `put` raises breaks it."""

    def __init__(self, put: Callable[[bytes], object], begun: Callable[[int, int | None], None]) -> None:
        self._put_bytes = put
        self._begun = begun
        self._deflater: zlib._Compress | None = None
        self.position = HEAD_BYTES
        self.offset = 0
        """In the uncompressed data."""
        self.in_record = 0
        """Bytes before compression in the record that is open."""

    @property
    def most_end(self) -> int:
        """Where the records end at most, if nothing comes."""
        return self.position if self._deflater is None else self.position + _RECORD_OVERHEAD_BYTES

    def pack(self, content: bytes) -> Packed:
        """A whole small file."""
        file = self.begin()
        at = 0
        while at < len(content):
            piece = content[at : at + file.room_bytes]
            file.piece(piece)
            at += len(piece)
        return file.end()

    def begin(self) -> "FilePacking":
        """A file that comes in pieces."""
        return FilePacking(self)

    def piece(self, data: bytes) -> None:
        """At most as much as the record has room for."""
        if self._deflater is None:
            self._begun(self.offset, self.position)
            self._deflater = zlib.compressobj()
        self._put(self._deflater.compress(data))
        self.offset += len(data)
        self.in_record += len(data)
        if self.in_record == RECORD_BYTES:
            self.end_record()

    def zeros(self) -> None:
        """A record of zeros, which has no bytes. No record may be open."""
        self._begun(self.offset, None)
        self.offset += RECORD_BYTES

    def flush(self) -> None:
        """What comes next can be inflated by itself."""
        if self._deflater is not None:
            self._put(self._deflater.flush(zlib.Z_FULL_FLUSH))

    def end_record(self) -> None:
        """Ends the record that is open, if one is."""
        if self._deflater is not None:
            self._put(self._deflater.flush())
            self._put(bytes(padding_after(self.position)))
            self._deflater = None
            self.in_record = 0

    def _put(self, data: bytes) -> None:
        self.position += len(data)
        self._put_bytes(data)


class FilePacking:
    """One file on its way into records."""

    def __init__(self, packer: RecordPacker) -> None:
        self._packer = packer
        self._start = packer.position
        self._in_record = packer.in_record
        self._runs: list[tuple[int, int]] = []
        self._pieces = 0
        self._offset = packer.offset

    @property
    def room_bytes(self) -> int:
        """Size that the next piece has, if it is not the last."""
        return RECORD_BYTES - self._packer.in_record

    def piece(self, data: bytes) -> None:
        """The next one. Zeros that are a record need no bytes."""
        if data == ZEROS and (len(self._runs) < MOST_RUNS or self._continues_run()):
            self._packer.zeros()
            self._note_zeros()
        else:
            self._packer.piece(data)
        self._pieces += 1

    def _continues_run(self) -> bool:
        return bool(self._runs) and sum(self._runs[-1]) == self._pieces

    def _note_zeros(self) -> None:
        if self._continues_run():
            first, count = self._runs[-1]
            self._runs[-1] = first, count + 1
        else:
            self._runs.append((self._pieces, 1))

    def end(self) -> Packed:
        """Afterwards the next file can begin. An empty one is where it stands, and is not decoded."""
        packer = self._packer
        if not self._pieces:
            return Packed(self._start, self._start, self._offset, None)
        packer.flush()
        return Packed(self._start, packer.position, self._offset, decoding_text(self._in_record, self._runs))

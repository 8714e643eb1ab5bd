"""Decodes the content of an entry of a ChunkIO archive from the bytes of its span alone.

Values of `Entry.decoding`: "pieces" is a file that cafcat packed into one or more records; "record" is the content
of one record; "deflate" is the inflated content of one record.
"""

from collections.abc import Iterator
from typing import Final

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.chunkio.deflating import inflate
from cafcat.formats.chunkio.metering import is_position, strip_meters
from cafcat.formats.chunkio.pieces import PIECE_BYTES, file_mark
from cafcat.formats.chunkio.records import HEADER_BYTES, Record, parse_header
from cafcat.formats.chunkio.siphash import hasher, siphash
from cafcat.model import Entry

__all__ = ["DEFLATE", "PIECES", "RECORD", "decode"]

PIECES: Final = "pieces"
"""Decoding of a file that cafcat packed into one or more records."""
RECORD: Final = "record"
"""Decoding of the content of one record."""
DEFLATE: Final = "deflate"
"""Decoding of the content of one record that is raw DEFLATE."""

_BLOCK_BYTES: Final = 1 << 20


def decode(span: Iterator[bytes], entry: Entry, chunk: str | None = None, *, exact: bool = True) -> Iterator[bytes]:
    """Return the content of an entry of a ChunkIO archive in blocks of at most 1 MiB.

    A record of at most 1 MiB is checked completely before any of its bytes are returned. Memory: about three blocks
    of 1 MiB, if the blocks of `span` are not larger.

    Args:
        span: the bytes of the entry's span, in blocks of any size.
        entry: the entry.
        chunk: name of the archive, for messages; None if it is unknown.
        exact: False if `content_bytes` of a "deflate" entry is an upper bound and not the size.

    Raises:
        Corrupt: the span is too short or too long, a SipHash is wrong, the records do not match the entry, or the
            content of a "deflate" entry is not a DEFLATE stream of the expected size.
        Unsupported: the decoding is unknown.
    """
    if entry.decoding == PIECES:
        return _pieces(_Payload(span, entry, chunk))
    if entry.decoding == RECORD:
        return _record(_Payload(span, entry, chunk), entry.content_bytes)
    if entry.decoding == DEFLATE:
        return _inflated_record(_Payload(span, entry, chunk), entry.content_bytes or 0, exact)
    message = f"unknown decoding of a ChunkIO entry: {entry.decoding!r}"
    raise Unsupported(message, path=entry.path, chunk=chunk)


class _Payload:
    """The records of an entry's span without the meters, read from start to end. Methods raise Corrupt."""

    def __init__(self, span: Iterator[bytes], entry: Entry, chunk: str | None) -> None:
        self._entry = entry
        self._chunk = chunk
        if not is_position(entry.start_byte) or not is_position(entry.end_byte):
            raise self.corrupt(f"the span [{entry.start_byte}, {entry.end_byte}) cannot be that of a record")
        self._offset = 0
        self._parts = self._payload(span)
        self._part = memoryview(b"")

    def _payload(self, span: Iterator[bytes]) -> Iterator[bytes]:
        position = self._entry.start_byte
        for block in span:
            yield strip_meters(position, block)
            position += len(block)
        if position != self._entry.end_byte:
            size_bytes = self._entry.end_byte - self._entry.start_byte
            read_bytes = position - self._entry.start_byte
            raise self.corrupt(f"the span should have {size_bytes} bytes, but {read_bytes} were read")

    def read(self, size_bytes: int) -> bytes:
        """Return exactly the next `size_bytes` bytes. Raises Corrupt if the span ends before."""
        parts: list[memoryview] = []
        while size_bytes:
            if not self._part:
                self._part = self._next_part()
            parts.append(self._part[:size_bytes])
            self._part = self._part[size_bytes:]
            size_bytes -= len(parts[-1])
        return b"".join(parts)

    def _next_part(self) -> memoryview:
        part = next(self._parts, None)
        if part is None:
            raise self.corrupt("the span ends within a record")
        return memoryview(part)

    def header(self) -> Record:
        """Read the next 40 bytes and return the record with this header. Raises Corrupt if the header is damaged.

        `begin` and `end` of the result are only right for the first record of the span.
        """
        record = parse_header(self.read(HEADER_BYTES), self._entry.start_byte)
        if record is None:
            raise self.corrupt("the header of a record is damaged: its SipHash is wrong")
        return record

    def end(self) -> None:
        """Check that all bytes of the span were read. Raises Corrupt if there are more."""
        if self._part or any(self._parts):
            raise self.corrupt("the span has more bytes after the end of its record")

    def corrupt(self, message: str) -> Corrupt:
        """Return (not raise) an error with the entry's path, the name of the archive, and the start of the span."""
        return Corrupt(message, path=self._entry.path, chunk=self._chunk, byte=self._entry.start_byte)

    def locate(self, error: Corrupt) -> None:
        """Add the entry's path, the name of the archive and the start of the span to an error without a chunk."""
        if error.chunk is None:
            error.path, error.chunk, error.byte = self._entry.path, self._chunk, self._entry.start_byte

    def check(self, found: bytes, record: Record) -> None:
        """Check the content of a record. Raises Corrupt if its SipHash `found` is not the one in its header."""
        if found != record.content_hash:
            expected = record.content_hash[::-1].hex()
            message = f"the SipHash of a record's content is {found[::-1].hex()}, but its header has {expected}"
            raise self.corrupt(message)


def _pieces(payload: _Payload) -> Iterator[bytes]:
    size_bytes = payload._entry.content_bytes or 0
    for start in range(0, size_bytes or 1, PIECE_BYTES):
        record = payload.header()
        if record.user_data != file_mark(start):
            raise payload.corrupt(f"the record is not the piece that begins at byte {start} of the file")
        if record.content_bytes != min(PIECE_BYTES, size_bytes - start):
            expected = min(PIECE_BYTES, size_bytes - start)
            raise payload.corrupt(f"a piece of the file has {record.content_bytes} bytes, expected {expected}")
        content = payload.read(record.content_bytes)
        payload.check(siphash(content), record)
        if content:
            yield content
    payload.end()


def _record(payload: _Payload, size_bytes: int | None) -> Iterator[bytes]:
    """Yield the content of one record. `size_bytes` is the expected size of the content, or None if it is unknown.

    The SipHash is checked before the last block is yielded.
    """
    record = payload.header()
    if size_bytes not in (None, record.content_bytes):
        raise payload.corrupt(f"the content of the record has {record.content_bytes} bytes, expected {size_bytes}")
    checksum = hasher()
    block = b""
    for start in range(0, record.content_bytes, _BLOCK_BYTES):
        if block:
            yield block
        block = payload.read(min(_BLOCK_BYTES, record.content_bytes - start))
        checksum.update(block)
    payload.end()
    payload.check(checksum.digest(), record)
    if block:
        yield block


def _inflated_record(payload: _Payload, size_bytes: int, exact: bool) -> Iterator[bytes]:
    found = 0
    try:
        for block in inflate(_record(payload, None), size_bytes):
            found += len(block)
            yield block
    except Corrupt as error:
        payload.locate(error)
        raise
    if exact and found != size_bytes:
        raise payload.corrupt(f"the record inflates to {found} bytes, expected {size_bytes}")

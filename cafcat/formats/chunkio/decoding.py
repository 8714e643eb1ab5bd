"""Making the file of the bytes of an entry's span, and of nothing else.

What `Entry.decoding` says: "pieces" is a file that cafcat packed, in one or more records; "record" the content of
one record; "deflate" the same, inflated.
"""

from collections.abc import Iterator
from typing import Final

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.chunkio.deflating import inflated
from cafcat.formats.chunkio.metering import is_position, unmetered
from cafcat.formats.chunkio.pieces import PIECE_BYTES, file_mark
from cafcat.formats.chunkio.records import HEADER_BYTES, Record, parse_header
from cafcat.formats.chunkio.siphash import hasher, siphash
from cafcat.model import Entry

__all__ = ["DEFLATE", "PIECES", "RECORD", "decode"]

PIECES: Final = "pieces"
RECORD: Final = "record"
DEFLATE: Final = "deflate"

_BLOCK_BYTES: Final = 1 << 20


def decode(span: Iterator[bytes], entry: Entry, chunk: str | None = None, *, exact: bool = True) -> Iterator[bytes]:
    """The content of an entry in blocks of at most 1 MiB. Each record of at most 1 MiB is checked before any of it
    comes out. Memory: three blocks. span: in blocks of any size; chunk: for messages; exact: False if content_bytes
    of "deflate" is a bound, and not the size.

    Raises Corrupt for a span that is shorter or longer than the entry says, and where header or content do not have
    the SipHash they should or are not what the entry says; Unsupported for a decoding of another word.
    """
    if entry.decoding == PIECES:
        return _pieces(_Payload(span, entry, chunk))
    if entry.decoding == RECORD:
        return _record(_Payload(span, entry, chunk), entry.content_bytes)
    if entry.decoding == DEFLATE:
        return _deflated(_Payload(span, entry, chunk), entry.content_bytes or 0, exact)
    message = f"ChunkIO has no content that is decoded as {entry.decoding!r}"
    raise Unsupported(message, path=entry.path, chunk=chunk)


class _Payload:
    """What is in the span besides meters, taken from its begin to its end."""

    def __init__(self, span: Iterator[bytes], entry: Entry, chunk: str | None) -> None:
        self._entry = entry
        self._chunk = chunk
        if not is_position(entry.start_byte) or not is_position(entry.end_byte):
            raise self.corrupt(f"no record is at [{entry.start_byte}, {entry.end_byte})")
        self._offset = 0
        self._parts = self._payload(span)
        self._part = memoryview(b"")

    def _payload(self, span: Iterator[bytes]) -> Iterator[bytes]:
        position = self._entry.start_byte
        for block in span:
            yield unmetered(position, block)
            position += len(block)
        if position != self._entry.end_byte:
            size_bytes = self._entry.end_byte - self._entry.start_byte
            raise self.corrupt(f"{position - self._entry.start_byte} bytes were read of a span of {size_bytes}")

    def take(self, size_bytes: int) -> bytes:
        """The next so many bytes."""
        taken: list[memoryview] = []
        while size_bytes:
            if not self._part:
                self._part = self._next_part()
            taken.append(self._part[:size_bytes])
            self._part = self._part[size_bytes:]
            size_bytes -= len(taken[-1])
        return b"".join(taken)

    def _next_part(self) -> memoryview:
        part = next(self._parts, None)
        if part is None:
            raise self.corrupt("the record goes on after the end of its span")
        return memoryview(part)

    def header(self) -> Record:
        """The record whose header comes next."""
        record = parse_header(self.take(HEADER_BYTES), self._entry.start_byte)
        if record is None:
            raise self.corrupt("the header of a record is damaged: it has another SipHash")
        return record

    def end(self) -> None:
        """Nothing may be left."""
        if self._part or any(self._parts):
            raise self.corrupt("the span goes on after the end of its record")

    def corrupt(self, message: str) -> Corrupt:
        return Corrupt(message, path=self._entry.path, chunk=self._chunk, byte=self._entry.start_byte)

    def check(self, found: bytes, record: Record) -> None:
        """That the content hashes to what its header says."""
        if found != record.content_hash:
            said = record.content_hash[::-1].hex()
            message = f"the content of a record has the SipHash {found[::-1].hex()}, its header says {said}"
            raise self.corrupt(message)


def _pieces(payload: _Payload) -> Iterator[bytes]:
    size_bytes = payload._entry.content_bytes or 0
    for start in range(0, size_bytes or 1, PIECE_BYTES):
        record = payload.header()
        if record.user_data != file_mark(start):
            raise payload.corrupt(f"this is not the piece of the file from its byte {start} on")
        if record.content_bytes != min(PIECE_BYTES, size_bytes - start):
            raise payload.corrupt(f"a piece of the file has {record.content_bytes} bytes of {size_bytes - start}")
        content = payload.take(record.content_bytes)
        payload.check(siphash(content), record)
        if content:
            yield content
    payload.end()


def _record(payload: _Payload, size_bytes: int | None) -> Iterator[bytes]:
    """size_bytes: that its content has to have, if that is known."""
    record = payload.header()
    if size_bytes not in (None, record.content_bytes):
        raise payload.corrupt(f"the content of the record has {record.content_bytes} bytes, not {size_bytes}")
    checksum = hasher()
    block = b""
    for start in range(0, record.content_bytes, _BLOCK_BYTES):
        if block:
            yield block
        block = payload.take(min(_BLOCK_BYTES, record.content_bytes - start))
        checksum.update(block)
    payload.end()
    payload.check(checksum.digest(), record)
    if block:
        yield block


def _deflated(payload: _Payload, size_bytes: int, exact: bool) -> Iterator[bytes]:
    found = 0
    for block in inflated(_record(payload, None), size_bytes, payload.corrupt):
        found += len(block)
        yield block
    if exact and found != size_bytes:
        raise payload.corrupt(f"the record inflates to {found} bytes, not {size_bytes}")

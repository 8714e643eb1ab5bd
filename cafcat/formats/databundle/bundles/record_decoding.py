"""Decodes a file of a bundle from the bytes of the records that hold it. No index is needed.

`Entry.decoding` is "zlib 262144 OFFSET" or "snappy 262144 OFFSET": the size of a record before compression, and the
offset of the file in its first record. If records of the file are zeros without stored bytes, a list follows: "zlib
262144 0 2+3,9+1" for the records 2, 3, 4 and 9, counted from the first record of the file.

All records of a file except its last one are complete, so the end of each one is found as follows. A zlib stream
has an end of its own. Snappy frames state the size of their content. Padding consists of zeros, and a record never
begins with a zero.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from threading import local
from typing import Final, NamedTuple

from cafcat.errors import Corrupt, Unsupported, shown_path
from cafcat.formats.base import UNSUPPORTED_PREFIX
from cafcat.formats.databundle.bundles.compression import (
    METHODS,
    SNAPPY,
    SNAPPY_HEAD_BYTES,
    decompress_record,
    max_stored_bytes,
    snappy_body_bytes,
    snappy_content_bytes,
)
from cafcat.formats.databundle.decoding import parse_runs, runs_text
from cafcat.formats.databundle.layout import MAX_RECORD_BYTES
from cafcat.model import Entry

__all__ = ["DAMAGED", "MAX_RUNS_CHARACTERS", "RecordDecoding", "decode_records", "parse_record_decoding"]

MAX_RUNS_CHARACTERS: Final = 4000
"""Largest number of characters for the runs of zero records: 500 runs or more. This limits the size of
`Entry.decoding` in the catalog."""
DAMAGED: Final = "damaged: "
"""Prefix of `Entry.decoding` for a damaged file that can be listed but not read. The rest is the reason. Opening
such a file raises Corrupt."""

_TEXT: Final = re.compile(
    rf"(zlib|snappy) ([1-9][0-9]{{0,6}}) (0|[1-9][0-9]{{0,6}})(?: ([0-9+,]{{3,{MAX_RUNS_CHARACTERS}}}))?", re.ASCII
)
_BLOCK_BYTES: Final = 1 << 20
_INPUT_BYTES: Final = 64 << 10
_ZEROS: Final = bytes(_BLOCK_BYTES)


class RecordDecoding(NamedTuple):
    """The parsed `Entry.decoding` of a file in a shard of a bundle. `str()` returns the unparsed text.

    Attributes:
        method: "zlib" or "snappy".
        record_bytes: size of a record in bytes before compression.
        offset: offset of the file in its first record, in bytes before compression.
        runs: for each run of adjacent zero records, the number of the first record, and the number of records.
    """

    method: str
    record_bytes: int
    offset: int
    runs: Sequence[tuple[int, int]]

    def __str__(self) -> str:
        return f"{self.method} {self.record_bytes} {self.offset}{runs_text(self.runs)}"


def parse_record_decoding(text: str) -> RecordDecoding | None:
    """Parse an `Entry.decoding` such as "zlib 262144 0 2+3". Return None if the text is not valid."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    record_bytes, offset, runs = int(found[2]), int(found[3]), parse_runs(found[4])
    if runs is None or not offset < record_bytes <= MAX_RECORD_BYTES:
        return None
    return RecordDecoding(found[1], record_bytes, offset, runs)


def decode_records(span: Iterator[bytes], entry: Entry, chunk: str | None = None) -> Iterator[bytes]:
    """Yield the content of an entry in blocks of at most 1 MiB. Data after the file's last byte is not checked.

    Memory: a record, compressed and decompressed, and a block of the span. Each thread caches one record for files
    that share it.

    Args:
        span: the bytes of the entry's span, in blocks of any size.
        entry: the entry, of a shard of a bundle.
        chunk: name of the archive, for messages; None if it is unknown.

    Raises:
        Corrupt: the span is too short, its records are incomplete, its data is damaged, the decoding has zero
            records after the end of the file, or the entry was listed as damaged.
        Unsupported: the decoding is unknown, or the entry can only be listed.
        NotInstalled: the compression is snappy, and its library is not installed.
    """
    decoding = parse_record_decoding(entry.decoding or "")
    if decoding is None:
        raise _unknown_decoding(entry, chunk)
    record = b""
    if _shares_record(decoding, entry):
        stored = b"".join(span)
        record, span = _decompress_cached(decoding, stored), iter((stored,))
    end = decoding.offset + entry.size_bytes
    if end <= len(record):
        yield from _blocks(record, decoding.offset, end)
    else:
        yield from _stream_records(_SpanReader(span, decoding, entry, chunk), decoding, entry)


def _shares_record(decoding: RecordDecoding, entry: Entry) -> bool:
    """Return True if the file lies in a single record with stored bytes, which adjacent files may share."""
    fits = decoding.offset + entry.size_bytes <= decoding.record_bytes
    return (
        fits and not decoding.runs and entry.end_byte - entry.start_byte <= max_stored_bytes(decoding.record_bytes)
    )


class _RecordCache(local):
    """The last record that the current thread decompressed, with its compression method and compressed bytes."""

    method = 0
    stored = record = b""


_CACHE: Final = _RecordCache()


def _decompress_cached(decoding: RecordDecoding, stored: bytes) -> bytes:
    """Decompress the record in the bytes `stored`. Return b"" if the record is damaged.

    The file may still be readable if it lies before the damage. Adjacent files often share a record, so the last
    record is cached.
    """
    method = METHODS[decoding.method]
    if (_CACHE.method, _CACHE.stored) != (method, stored):
        try:
            record = decompress_record(method, stored, decoding.record_bytes)
        except ValueError:
            return b""
        _CACHE.method, _CACHE.stored, _CACHE.record = method, stored, record
    return _CACHE.record


def _blocks(record: bytes, start: int, end: int) -> Iterator[bytes]:
    for position in range(start, end, _BLOCK_BYTES):
        yield record[position : min(position + _BLOCK_BYTES, end)]


def _stream_records(source: "_SpanReader", decoding: RecordDecoding, entry: Entry) -> Iterator[bytes]:
    remaining, number, offset = entry.content_bytes or 0, 0, decoding.offset
    runs = iter((*decoding.runs, (-1, 0)))
    first, count = next(runs)
    while remaining > 0:
        size_bytes = min(remaining, decoding.record_bytes - offset)
        is_zeros = first <= number < first + count
        yield from (
            _zeros(size_bytes)
            if is_zeros
            else source.read_piece(offset, size_bytes, is_last=size_bytes == remaining)
        )
        remaining, number, offset = remaining - size_bytes, number + 1, 0
        if number == first + count:
            first, count = next(runs)
    if first >= number:
        raise source.corrupt("the decoding of the file has more zero records than the file")


def _unknown_decoding(entry: Entry, chunk: str | None) -> Corrupt | Unsupported:
    text = entry.decoding or ""
    if text.startswith(DAMAGED):
        return Corrupt(text.removeprefix(DAMAGED), path=entry.path, chunk=chunk)
    if text.startswith(UNSUPPORTED_PREFIX):
        return Unsupported(text.removeprefix(UNSUPPORTED_PREFIX), path=entry.path, chunk=chunk)
    message = f"unknown decoding of a DataBundle entry: {shown_path(text)!r}"
    return Unsupported(message, path=entry.path, chunk=chunk)


def _zeros(size_bytes: int) -> Iterator[bytes]:
    for start in range(0, size_bytes, _BLOCK_BYTES):
        yield _ZEROS[: size_bytes - start]


class _SpanReader:
    """Reads the records of a file from the bytes of its span, in order. Methods raise Corrupt for damaged data."""

    def __init__(self, span: Iterator[bytes], decoding: RecordDecoding, entry: Entry, chunk: str | None) -> None:
        self._span = span
        self._method = METHODS[decoding.method]
        self._record_bytes = decoding.record_bytes
        self._entry = entry
        self._chunk = chunk
        self._position = entry.start_byte
        self._block = memoryview(b"")

    def read_piece(self, offset: int, size_bytes: int, *, is_last: bool) -> Iterator[bytes]:
        """Yield the part of the file that is in the next record, in blocks of at most 1 MiB.

        Args:
            offset: offset of the part in the record, in bytes before compression.
            size_bytes: size of the part in bytes.
            is_last: True if the file ends in this record. Only such a record may be incomplete.
        """
        if self._position > self._entry.start_byte:
            self._skip_padding()
        needed = offset + size_bytes if is_last else self._record_bytes
        record = (
            self._decode_snappy(needed)
            if self._method == SNAPPY
            else self._inflate_record(needed, to_end=not is_last)
        )
        yield from _blocks(record, offset, offset + size_bytes)

    def _skip_padding(self) -> None:
        """Skip the zeros before the next record. A record never begins with a zero."""
        while (block := self._next_block())[0] == 0:
            zeros = len(block) - len(bytes(block).lstrip(b"\0"))
            self._advance(zeros)

    def _inflate_record(self, needed: int, *, to_end: bool) -> bytes:
        """Return the first `needed` bytes of the next record, decompressed with zlib.

        If `to_end` is True, the record must have exactly this size, and is read to its end.
        """
        inflater = zlib.decompressobj()
        parts: list[bytes] = []
        remaining = needed
        while remaining or (to_end and not inflater.eof):
            part = self._inflate(inflater, remaining or 1)
            if len(part) > remaining:
                raise self.corrupt("a record has more bytes than it should")
            parts.append(part)
            remaining -= len(part)
            if inflater.eof and remaining:
                raise self.corrupt("a record ends too early")
        return b"".join(parts)

    def _inflate(self, inflater: "zlib._Decompress", max_bytes: int) -> bytes:
        """Inflate some of the next bytes, and return at most `max_bytes`. Empty only if more input is needed."""
        data = self._next_block()[:_INPUT_BYTES]
        try:
            part = inflater.decompress(data, max_bytes)
        except zlib.error as error:
            raise self.corrupt(f"a record is not a zlib stream: {error}") from error
        self._advance(len(data) - len(inflater.unconsumed_tail) - len(inflater.unused_data))
        return part

    def _decode_snappy(self, needed: int) -> bytes:
        """Return at least `needed` bytes from the start of the next record, decompressed by whole snappy frames."""
        frames = bytearray()
        found, max_bytes = 0, max_stored_bytes(self._record_bytes)
        while (body_bytes := snappy_body_bytes(head := self._read_exactly(SNAPPY_HEAD_BYTES))) is not None:
            body = self._read_exactly(min(body_bytes, max_bytes))
            frames += head + body
            found += snappy_content_bytes(head[0], body)
            if found >= needed or len(frames) > max_bytes:
                break
        if not needed <= found <= self._record_bytes or len(frames) > max_bytes:
            raise self.corrupt("a record does not consist of snappy frames, or is too large")
        try:
            record = decompress_record(SNAPPY, bytes(frames), found)
        except ValueError as error:
            raise self.corrupt(f"a record is damaged: {error}") from error
        if len(record) != found:
            raise self.corrupt(f"a record has {len(record):,} bytes, but its frames state {found:,}")
        return record

    def _read_exactly(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            part = self._next_block()[: size_bytes - len(data)]
            data += part
            self._advance(len(part))
        return bytes(data)

    def _next_block(self) -> memoryview:
        """Return some of the next bytes of the span, without consuming them. Raises Corrupt if none are left."""
        while not self._block:
            block = next(self._span, None)
            if block is None:
                raise self.corrupt("the file's span ends before the end of the file")
            self._block = memoryview(block)
        return self._block

    def _advance(self, size_bytes: int) -> None:
        self._position += size_bytes
        self._block = self._block[size_bytes:]

    def corrupt(self, message: str) -> Corrupt:
        return Corrupt(message, path=self._entry.path, chunk=self._chunk, byte=self._position)

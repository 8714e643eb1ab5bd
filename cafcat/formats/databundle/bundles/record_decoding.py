"""A file of a bundle out of the records that hold it, and of nothing else: no index is needed.

What `Entry.decoding` says: "zlib 262144 OFFSET" or "snappy 262144 OFFSET", with the bytes of a record before
compression and the offset of the file in its first record; then, if records of it are zeros without bytes, which:
"zlib 262144 0 2+3,9+1" for the records 2, 3, 4 and 9, counted from the first of the file. All records of a file but
its last are whole. Where each ends in the span follows: a zlib stream ends by itself, snappy frames tell how much
they are of, and zeros go to where the next begins, which never begins with a zero.
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
    decompressed,
    most_stored_bytes,
    snappy_frames,
)
from cafcat.formats.databundle.decoding import parse_runs, runs_text
from cafcat.formats.databundle.layout import MOST_RECORD_BYTES
from cafcat.model import Entry

__all__ = ["DAMAGED", "LONGEST_RUNS", "RecordDecoding", "decode_records", "parse_record_decoding"]

LONGEST_RUNS: Final = 4000
"""Characters: a bound for what the catalog keeps of one file, some 500 runs of zeros."""
DAMAGED: Final = "damaged: "
"""What `decoding` begins with of a file whose records cannot be right; the rest says why."""

_TEXT: Final = re.compile(
    rf"(zlib|snappy) ([1-9][0-9]{{0,6}}) (0|[1-9][0-9]{{0,6}})(?: ([0-9+,]{{3,{LONGEST_RUNS}}}))?", re.ASCII
)
_BLOCK_BYTES: Final = 1 << 20
_INPUT_BYTES: Final = 64 << 10
_ZEROS: Final = bytes(_BLOCK_BYTES)


class RecordDecoding(NamedTuple):
    """method: "zlib" or "snappy"; record_bytes: before compression; offset: of the file in its first record; runs:
    numbers of the first record and of records that are zeros."""

    method: str
    record_bytes: int
    offset: int
    runs: Sequence[tuple[int, int]]

    def __str__(self) -> str:
        return f"{self.method} {self.record_bytes} {self.offset}{runs_text(self.runs)}"


def parse_record_decoding(text: str) -> RecordDecoding | None:
    """None if it is no such text."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    record_bytes, offset, runs = int(found[2]), int(found[3]), parse_runs(found[4])
    if runs is None or not offset < record_bytes <= MOST_RECORD_BYTES:
        return None
    return RecordDecoding(found[1], record_bytes, offset, runs)


def decode_records(span: Iterator[bytes], entry: Entry, chunk: str | None = None) -> Iterator[bytes]:
    """The content of an entry in blocks of at most 1 MiB; what follows its last byte need not be right. Memory: a
    record, compressed and not, and a block of the span; each thread keeps one for files that share it.

    Raises Corrupt where the span is not what the entry says: too short, not of whole records, or not compressed so.
    Unsupported for a decoding of another kind, NotInstalled if a library is not installed.
    """
    decoding = parse_record_decoding(entry.decoding or "")
    if decoding is None:
        raise _not_known(entry, chunk)
    record = b""
    if _shares_record(decoding, entry):
        stored = b"".join(span)
        record, span = _whole_record(decoding, stored), iter((stored,))
    end = decoding.offset + entry.size_bytes
    if end <= len(record):
        yield from _blocks(record, decoding.offset, end)
    else:
        yield from _streamed(_Span(span, decoding, entry, chunk), decoding, entry)


def _shares_record(decoding: RecordDecoding, entry: Entry) -> bool:
    """Whether it lies in one record that is stored."""
    fits = decoding.offset + entry.size_bytes <= decoding.record_bytes
    return (
        fits and not decoding.runs and entry.end_byte - entry.start_byte <= most_stored_bytes(decoding.record_bytes)
    )


class _Kept(local):
    """The record that a thread had last."""

    method = 0
    stored = record = b""


_KEPT: Final = _Kept()


def _whole_record(decoding: RecordDecoding, stored: bytes) -> bytes:
    """What these bytes are decompressed to; nothing if they are damaged anywhere: the file may be before that. Of
    files one after the other most have the same."""
    method = METHODS[decoding.method]
    if (_KEPT.method, _KEPT.stored) != (method, stored):
        try:
            record = decompressed(method, stored, decoding.record_bytes)
        except ValueError:
            return b""
        _KEPT.method, _KEPT.stored, _KEPT.record = method, stored, record
    return _KEPT.record


def _blocks(record: bytes, start: int, end: int) -> Iterator[bytes]:
    for at in range(start, end, _BLOCK_BYTES):
        yield record[at : min(at + _BLOCK_BYTES, end)]


def _streamed(source: "_Span", decoding: RecordDecoding, entry: Entry) -> Iterator[bytes]:
    left, number, offset = entry.content_bytes or 0, 0, decoding.offset
    runs = iter((*decoding.runs, (-1, 0)))
    first, count = next(runs)
    while left > 0:
        size_bytes = min(left, decoding.record_bytes - offset)
        is_zeros = first <= number < first + count
        yield from _zeros(size_bytes) if is_zeros else source.piece(offset, size_bytes, is_last=size_bytes == left)
        left, number, offset = left - size_bytes, number + 1, 0
        if number == first + count:
            first, count = next(runs)
    if first >= number:
        raise source.corrupt("more of its records are zeros than it has")


def _not_known(entry: Entry, chunk: str | None) -> Corrupt | Unsupported:
    text = entry.decoding or ""
    if text.startswith(DAMAGED):
        return Corrupt(text.removeprefix(DAMAGED), path=entry.path, chunk=chunk)
    if text.startswith(UNSUPPORTED_PREFIX):
        return Unsupported(text.removeprefix(UNSUPPORTED_PREFIX), path=entry.path, chunk=chunk)
    message = f"DataBundle has no content that is decoded as {shown_path(text)!r}"
    return Unsupported(message, path=entry.path, chunk=chunk)


def _zeros(size_bytes: int) -> Iterator[bytes]:
    for start in range(0, size_bytes, _BLOCK_BYTES):
        yield _ZEROS[: size_bytes - start]


class _Span:
    """The bytes of the span, taken one after the other, record by record."""

    def __init__(self, span: Iterator[bytes], decoding: RecordDecoding, entry: Entry, chunk: str | None) -> None:
        self._span = span
        self._method = METHODS[decoding.method]
        self._record_bytes = decoding.record_bytes
        self._entry = entry
        self._chunk = chunk
        self._position = entry.start_byte
        self._block = memoryview(b"")

    def piece(self, offset: int, size_bytes: int, *, is_last: bool) -> Iterator[bytes]:
        """What the next record has of the file, in blocks. Only the last record need not be whole."""
        if self._position > self._entry.start_byte:
            self._pass_padding()
        needed = offset + size_bytes if is_last else self._record_bytes
        record = self._unframed(needed) if self._method == SNAPPY else self._inflated(needed, is_whole=not is_last)
        yield from _blocks(record, offset, offset + size_bytes)

    def _pass_padding(self) -> None:
        """A record never begins with a zero."""
        while (block := self._some())[0] == 0:
            zeros = len(block) - len(bytes(block).lstrip(b"\0"))
            self._take(zeros)

    def _inflated(self, needed: int, *, is_whole: bool) -> bytes:
        """The first so many bytes of a record; or all of it, which are so many."""
        inflater = zlib.decompressobj()
        parts: list[bytes] = []
        left = needed
        while left or (is_whole and not inflater.eof):
            part = self._inflate(inflater, left or 1)
            if len(part) > left:
                raise self.corrupt("a record has more bytes than it should")
            parts.append(part)
            left -= len(part)
            if inflater.eof and left:
                raise self.corrupt("a record ends before it should")
        return b"".join(parts)

    def _inflate(self, inflater: "zlib._Decompress", max_bytes: int) -> bytes:
        """What the next bytes inflate to: nothing only if there was not enough of them."""
        data = self._some()[:_INPUT_BYTES]
        try:
            part = inflater.decompress(data, max_bytes)
        except zlib.error as error:
            raise self.corrupt(f"a record is no zlib stream: {error}") from error
        self._take(len(data) - len(inflater.unconsumed_tail) - len(inflater.unused_data))
        return part

    def _unframed(self, needed: int) -> bytes:
        """The first so many bytes of a record, in whole frames: all of it, if it has no more."""
        frames = bytearray()
        found, most = 0, most_stored_bytes(self._record_bytes)
        for frame, content_bytes in snappy_frames(lambda size_bytes: self._exactly(min(size_bytes, most))):
            frames += frame
            found += content_bytes
            if found >= needed or len(frames) > most:
                break
        if not needed <= found <= self._record_bytes or len(frames) > most:
            raise self.corrupt("a record is not of snappy frames, or larger than it should")
        try:
            record = decompressed(SNAPPY, bytes(frames), found)
        except ValueError as error:
            raise self.corrupt(f"a record is damaged: {error}") from error
        if len(record) != found:
            raise self.corrupt(f"a record has {len(record):,} bytes where its frames say {found:,}")
        return record

    def _exactly(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            part = self._some()[: size_bytes - len(data)]
            data += part
            self._take(len(part))
        return bytes(data)

    def _some(self) -> memoryview:
        """Of the bytes that come next, at least one."""
        while not self._block:
            block = next(self._span, None)
            if block is None:
                raise self.corrupt("its span ends before it does")
            self._block = memoryview(block)
        return self._block

    def _take(self, size_bytes: int) -> None:
        self._position += size_bytes
        self._block = self._block[size_bytes:]

    def corrupt(self, message: str) -> Corrupt:
        return Corrupt(message, path=self._entry.path, chunk=self._chunk, byte=self._position)

"""Decodes a file of a DataBundle that cafcat wrote, from the bytes of its span alone.

`Entry.decoding` is "deflate OFFSET": the offset of the file in its first record, before compression. If records of
the file are zeros without stored bytes, a list follows: "deflate 0 2+3,9+1" for the pieces 2, 3, 4 and 9. A piece
is the part of the file that is in one record. The compressor was flushed before each file, so the first piece can
be inflated on its own.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from cafcat.errors import Corrupt, Unsupported, shown_path
from cafcat.formats.databundle.layout import RECORD_BYTES, ZEROS, padding_after
from cafcat.model import Entry

__all__ = ["MAX_ZERO_RUNS", "Decoding", "decode", "decoding_text", "parse_decoding", "parse_runs", "runs_text"]

MAX_ZERO_RUNS: Final = 24
"""Largest number of runs of adjacent zero records in one file of a chunk. Zeros in further runs are stored as other
data. This limits the size of `Entry.decoding` in the catalog."""

_TEXT: Final = re.compile(r"deflate (0|[1-9][0-9]{0,5})(?: ([0-9+,]{3,1000}))?", re.ASCII)
_RUN: Final = re.compile(r"(0|[1-9][0-9]{0,14})\+([1-9][0-9]{0,14})", re.ASCII)
_CHECKSUM_BYTES: Final = 4
_INPUT_BYTES: Final = 256 << 10


class Decoding(NamedTuple):
    """The parsed `Entry.decoding` of a file in a DataBundle that cafcat wrote.

    Attributes:
        offset: offset of the file in its first record, in bytes before compression.
        runs: for each run of adjacent zero pieces, the number of the first piece, and the number of pieces.
    """

    offset: int
    runs: Sequence[tuple[int, int]]

    @property
    def zero_records(self) -> int:
        """Total number of records of the file that are zeros without stored bytes."""
        return sum(count for _, count in self.runs)


def decoding_text(offset: int, runs: Sequence[tuple[int, int]]) -> str:
    """Return the value of `Entry.decoding`, such as "deflate 0 2+3"; see the module docstring.

    Args:
        offset: offset of the file in its first record, in bytes before compression.
        runs: for each run of adjacent zero pieces, the number of the first piece, and the number of pieces.
    """
    return f"deflate {offset}{runs_text(runs)}"


def runs_text(runs: Sequence[tuple[int, int]]) -> str:
    """Return the text of runs of zero pieces with a leading space, such as " 2+3,9+1"; "" if there are none."""
    return " " + ",".join(f"{first}+{count}" for first, count in runs) if runs else ""


def parse_decoding(text: str) -> Decoding | None:
    """Parse an `Entry.decoding` such as "deflate 0 2+3". Return None if the text is not valid."""
    found = _TEXT.fullmatch(text)
    if found is None or int(found[1]) >= RECORD_BYTES:
        return None
    runs = parse_runs(found[2])
    if runs is None or len(runs) > MAX_ZERO_RUNS:
        return None
    # Only complete records are zero records. The first piece is a complete record only if its offset is 0.
    begins_inside = found[1] != "0"
    return None if begins_inside and runs and not runs[0][0] else Decoding(int(found[1]), runs)


def parse_runs(text: str | None) -> list[tuple[int, int]] | None:
    """Parse the text of runs, such as "2+3,9+1". Return an empty list if the text is None or empty.

    Return None if the text is malformed, or the runs are not in order, or two of them touch.
    """
    matches = [_RUN.fullmatch(run) for run in text.split(",")] if text else []
    runs = [(int(run[1]), int(run[2])) for run in matches if run is not None]
    ends = [-1, *(first + count for first, count in runs)]
    is_valid = len(runs) == len(matches) and all(end < run[0] for end, run in zip(ends, runs, strict=False))
    return runs if is_valid else None


def decode(span: Iterator[bytes], entry: Entry, chunk: str | None = None) -> Iterator[bytes]:
    """Yield the content of an entry in blocks of at most 256 KiB.

    Memory: two such blocks, and a block of the span.

    Args:
        span: the bytes of the entry's span, in blocks of any size.
        entry: the entry, of a DataBundle that cafcat wrote.
        chunk: name of the archive, for messages; None if it is unknown.

    Raises:
        Corrupt: the span is too short or too long, its data is damaged, the decoding has zero records after the end
            of the file, or the Adler-32 of a record is wrong. The Adler-32 is only checked for records that the
            file fills completely.
        Unsupported: the decoding is unknown.
    """
    decoding = parse_decoding(entry.decoding or "")
    if decoding is None:
        message = f"unknown decoding of a DataBundle entry: {shown_path(entry.decoding or '')!r}"
        raise Unsupported(message, path=entry.path, chunk=chunk)
    source = _SpanReader(span, entry, chunk)
    zeros = dict(decoding.runs)
    remaining, number, offset = entry.content_bytes or 0, 0, decoding.offset
    while remaining > 0:
        count = zeros.get(number, 0)
        if count * RECORD_BYTES > remaining:
            raise source.corrupt("the decoding of the file has more zero records than the file")
        for _ in range(count):
            yield ZEROS
        remaining, number = remaining - count * RECORD_BYTES, number + count
        if remaining and not count:
            size_bytes = min(remaining, RECORD_BYTES - offset)
            yield source.read_piece(size_bytes, offset)
            remaining, number, offset = remaining - size_bytes, number + 1, 0
    if any(first >= number for first in zeros):
        raise source.corrupt("the decoding of the file has more zero records than the file")
    source.check_end()


class _SpanReader:
    """Reads the pieces of a file from the bytes of its span, in order.

    Methods raise Corrupt if these bytes are damaged, too few or too many.
    """

    def __init__(self, span: Iterator[bytes], entry: Entry, chunk: str | None) -> None:
        self._span = span
        self._entry = entry
        self._chunk = chunk
        self._position = entry.start_byte
        self._block = memoryview(b"")

    def read_piece(self, size_bytes: int, offset: int) -> bytes:
        """Read and return the next piece of the file that has stored bytes.

        Args:
            size_bytes: size of the piece in bytes.
            offset: offset of the piece in its record, in bytes before compression.
        """
        # The zlib header precedes only the piece at the start of a record. Later pieces begin after a flush.
        inflater = zlib.decompressobj(-zlib.MAX_WBITS if offset else zlib.MAX_WBITS)
        parts: list[bytes] = []
        found = 0
        while found < size_bytes:
            parts.append(self._inflate(inflater, size_bytes - found))
            found += len(parts[-1])
        if offset + size_bytes == RECORD_BYTES:
            self._end_record(inflater, with_checksum=not offset)
        elif not inflater.eof:
            self._skip_flush(inflater)
        else:
            raise self.corrupt("the last record of the file ends within the span of the file")
        return b"".join(parts)

    def _inflate(self, inflater: "zlib._Decompress", max_bytes: int) -> bytes:
        """Inflate some of the next bytes of the span. Return at most `max_bytes` bytes.

        The result is empty only if more input is needed. Unused input stays in the buffer.
        """
        if inflater.eof:
            raise self.corrupt("a record ends too early")
        data = self._next_input()
        try:
            part = inflater.decompress(data, max_bytes)
        except zlib.error as error:
            raise self.corrupt(f"the data of the file is not valid DEFLATE: {error}") from error
        self._consume(data, len(inflater.unconsumed_tail) + len(inflater.unused_data))
        return part

    def _end_record(self, inflater: "zlib._Decompress", *, with_checksum: bool) -> None:
        """Read the end of a record, its Adler-32, and the padding after it.

        Args:
            inflater: zlib's object for the record.
            with_checksum: True if the record was read from its start, so that zlib checks the Adler-32. If False,
                the Adler-32 is skipped.
        """
        while not inflater.eof:
            if self._inflate(inflater, 1):
                raise self.corrupt("a record has more bytes than it should")
        if not with_checksum:
            self._skip(_CHECKSUM_BYTES)
        self._skip(padding_after(self._position))

    def _skip_flush(self, inflater: "zlib._Decompress") -> None:
        """Skip the bytes that flushing the compressor after the file produced, up to the end of the span.

        Raises Corrupt if they contain data, or the end of the record.
        """
        while self._has_more():
            if self._inflate(inflater, 1) or inflater.eof:
                raise self.corrupt("the span of the file has more bytes after the end of the file")

    def _skip(self, size_bytes: int) -> None:
        while size_bytes:
            part = self._next_input()[:size_bytes]
            self._consume(self._block, len(self._block) - len(part))
            size_bytes -= len(part)

    def check_end(self) -> None:
        """Check that all bytes of the span were read. Raises Corrupt if there are more."""
        if self._has_more():
            raise self.corrupt("the span of the file has more bytes after the end of the file")

    def _has_more(self) -> bool:
        while not self._block:
            block = next(self._span, None)
            if block is None:
                return False
            self._block = memoryview(block)
        return True

    def _next_input(self) -> memoryview:
        """Return some of the next bytes of the span, without consuming them. Raises Corrupt if none are left."""
        if not self._has_more():
            raise self.corrupt("the file's span ends before the end of the file")
        return self._block[:_INPUT_BYTES]

    def _consume(self, data: memoryview, unused_bytes: int) -> None:
        used_bytes = len(data) - unused_bytes
        self._position += used_bytes
        self._block = self._block[used_bytes:]

    def corrupt(self, message: str) -> Corrupt:
        return Corrupt(message, path=self._entry.path, chunk=self._chunk, byte=self._position)

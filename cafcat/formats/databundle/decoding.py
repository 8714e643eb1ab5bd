"""A file out of the bytes of its span, and of nothing else.

What `Entry.decoding` says: "deflate OFFSET", with the offset of the file in its first record before compression;
then, if records of it are zeros without bytes, which: "deflate 0 2+3,9+1" for the pieces 2, 3, 4 and 9. A piece is
what a record has of the file. The compressor was flushed before each file, so the first one can be inflated alone.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from cafcat.errors import Corrupt, Unsupported, shown_path
from cafcat.formats.databundle.layout import RECORD_BYTES, ZEROS, padding_after
from cafcat.model import Entry

__all__ = ["MOST_RUNS", "Decoding", "decode", "decoding_text", "parse_decoding", "parse_runs", "runs_text"]

MOST_RUNS: Final = 24
"""Of zero records in one file of a chunk or bundle that cafcat writes; those beyond are stored as others. It bounds
the text that the catalog keeps."""

_TEXT: Final = re.compile(r"deflate (0|[1-9][0-9]{0,5})(?: ([0-9+,]{3,1000}))?", re.ASCII)
_RUN: Final = re.compile(r"(0|[1-9][0-9]{0,14})\+([1-9][0-9]{0,14})", re.ASCII)
_CHECKSUM_BYTES: Final = 4
_INPUT_BYTES: Final = 256 << 10


class Decoding(NamedTuple):
    """offset: of the file in its first record; runs: numbers of the first piece and of pieces that are zeros."""

    offset: int
    runs: Sequence[tuple[int, int]]

    @property
    def zero_records(self) -> int:
        return sum(count for _, count in self.runs)


def decoding_text(offset: int, runs: Sequence[tuple[int, int]]) -> str:
    """As the catalog keeps it; see this module."""
    return f"deflate {offset}{runs_text(runs)}"


def runs_text(runs: Sequence[tuple[int, int]]) -> str:
    """With a space before it; nothing of none."""
    return " " + ",".join(f"{first}+{count}" for first, count in runs) if runs else ""


def parse_decoding(text: str) -> Decoding | None:
    """None if it is no such text."""
    found = _TEXT.fullmatch(text)
    if found is None or int(found[1]) >= RECORD_BYTES:
        return None
    runs = parse_runs(found[2])
    if runs is None or len(runs) > MOST_RUNS:
        return None
    # Of whole records: the first piece is one only if it begins its record.
    begins_inside = found[1] != "0"
    return None if begins_inside and runs and not runs[0][0] else Decoding(int(found[1]), runs)


def parse_runs(text: str | None) -> list[tuple[int, int]] | None:
    """None if they are not in order and apart."""
    matches = [_RUN.fullmatch(run) for run in text.split(",")] if text else []
    runs = [(int(run[1]), int(run[2])) for run in matches if run is not None]
    ends = [-1, *(first + count for first, count in runs)]
    is_right = len(runs) == len(matches) and all(end < run[0] for end, run in zip(ends, runs, strict=False))
    return runs if is_right else None


def decode(span: Iterator[bytes], entry: Entry, chunk: str | None = None) -> Iterator[bytes]:
    """The content of an entry in blocks of at most 256 KiB; memory: two of them, and a block of the span.

    Raises Corrupt where the span is not what the entry says: too short or too long, other deflated data, another
    Adler-32 of a record that the file has to its end. Unsupported for a decoding of another kind.
    """
    decoding = parse_decoding(entry.decoding or "")
    if decoding is None:
        message = f"DataBundle has no content that is decoded as {shown_path(entry.decoding or '')!r}"
        raise Unsupported(message, path=entry.path, chunk=chunk)
    source = _Span(span, entry, chunk)
    zeros = dict(decoding.runs)
    left, number, offset = entry.content_bytes or 0, 0, decoding.offset
    while left > 0:
        count = zeros.get(number, 0)
        if count * RECORD_BYTES > left:
            raise source.corrupt("more of its records are zeros than it has")
        for _ in range(count):
            yield ZEROS
        left, number = left - count * RECORD_BYTES, number + count
        if left and not count:
            size_bytes = min(left, RECORD_BYTES - offset)
            yield source.piece(size_bytes, offset)
            left, number, offset = left - size_bytes, number + 1, 0
    if any(first >= number for first in zeros):
        raise source.corrupt("more of its records are zeros than it has")
    source.end()


class _Span:
    """The bytes of the span, taken one after the other."""

    def __init__(self, span: Iterator[bytes], entry: Entry, chunk: str | None) -> None:
        self._span = span
        self._entry = entry
        self._chunk = chunk
        self._position = entry.start_byte
        self._block = memoryview(b"")

    def piece(self, size_bytes: int, offset: int) -> bytes:
        """The next so many bytes of the file; offset: of them in their record before compression."""
        # Who begins a record has the head of zlib before its data; who is flushed to has not.
        inflater = zlib.decompressobj(-zlib.MAX_WBITS if offset else zlib.MAX_WBITS)
        parts: list[bytes] = []
        found = 0
        while found < size_bytes:
            parts.append(self._inflate(inflater, size_bytes - found))
            found += len(parts[-1])
        if offset + size_bytes == RECORD_BYTES:
            self._end_record(inflater, with_checksum=not offset)
        elif not inflater.eof:
            self._pass_flush(inflater)
        else:
            raise self.corrupt("its last record ends before it does")
        return b"".join(parts)

    def _inflate(self, inflater: "zlib._Decompress", max_bytes: int) -> bytes:
        """What the next bytes inflate to: nothing only if there was not enough of them. Keeps what is left."""
        if inflater.eof:
            raise self.corrupt("a record ends before the file does")
        data = self._some()
        try:
            part = inflater.decompress(data, max_bytes)
        except zlib.error as error:
            raise self.corrupt(f"its data are not deflated: {error}") from error
        self._keep(data, len(inflater.unconsumed_tail) + len(inflater.unused_data))
        return part

    def _end_record(self, inflater: "zlib._Decompress", *, with_checksum: bool) -> None:
        """Its end, Adler-32 and padding. zlib checks the Adler-32 of a record that it has seen from its begin."""
        while not inflater.eof:
            if self._inflate(inflater, 1):
                raise self.corrupt("a record has more bytes than it should")
        if not with_checksum:
            self._pass(_CHECKSUM_BYTES)
        self._pass(padding_after(self._position))

    def _pass_flush(self, inflater: "zlib._Decompress") -> None:
        """What the flush behind the file has left: no data, and the end of the span."""
        while self._has_more():
            if self._inflate(inflater, 1) or inflater.eof:
                raise self.corrupt("its span goes on after its end")

    def _pass(self, size_bytes: int) -> None:
        while size_bytes:
            part = self._some()[:size_bytes]
            self._keep(self._block, len(self._block) - len(part))
            size_bytes -= len(part)

    def end(self) -> None:
        """Nothing may be left."""
        if self._has_more():
            raise self.corrupt("its span goes on after its end")

    def _has_more(self) -> bool:
        while not self._block:
            block = next(self._span, None)
            if block is None:
                return False
            self._block = memoryview(block)
        return True

    def _some(self) -> memoryview:
        """Of the bytes that come next."""
        if not self._has_more():
            raise self.corrupt("its span ends before it does")
        return self._block[:_INPUT_BYTES]

    def _keep(self, of: memoryview, left_bytes: int) -> None:
        taken = len(of) - left_bytes
        self._position += taken
        self._block = self._block[taken:]

    def corrupt(self, message: str) -> Corrupt:
        return Corrupt(message, path=self._entry.path, chunk=self._chunk, byte=self._position)

"""Sections: `uvarint(size of CID and block) | CID | block`, one after the other to the end of the payload."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.car import varint
from cafcat.formats.car.cid import MAX_CID_BYTES, cid_end, text_of
from cafcat.formats.car.header import roots_at

__all__ = ["MAX_HEAD_BYTES", "MAX_SECTION_BYTES", "Section", "SectionStream", "scan"]

MAX_SECTION_BYTES: Final = 8 << 20
"""Of CID and block. Larger ones are refused, as by go-car."""
MAX_HEAD_BYTES: Final = varint.MAX_VARINT_BYTES + MAX_CID_BYTES
_WINDOW_BYTES: Final = 1 << 20
_SMALL_WINDOW_BYTES: Final = 16 << 10
_LARGE_SECTION_BYTES: Final = 256 << 10
_SHOWN_ROOTS: Final = 3


class Section(NamedTuple):
    """Where a block stands: its section begins at start, the block itself is `[data_start, data_end)`."""

    start: int
    cid: bytes
    data_start: int
    data_end: int


class _ZeroSection(ValueError):
    """A section of size zero."""


def _head(window: bytes, at: int, zero_ends: bool) -> tuple[int, int, int] | None:
    """Of the section there: where its CID begins, its block begins, and it ends. None for a zero that is the end.
    Raises ValueError, and CutShort if the window ends too early to tell."""
    size_bytes, cid_at = varint.read(window, at)
    if size_bytes > MAX_SECTION_BYTES:
        raise ValueError(f"a section of {size_bytes:,} bytes: at most {MAX_SECTION_BYTES:,} are read")
    if not size_bytes:
        if zero_ends:
            return None
        raise _ZeroSection("a section of no bytes")
    end = cid_at + size_bytes
    data_at = cid_end(window, cid_at)
    if data_at > end:
        raise ValueError("a CID that goes beyond its section")
    return cid_at, data_at, end


def scan(archive: RandomReader, start: int, end: int, *, zero_ends: bool = False) -> Iterator[Section]:
    """The sections of `[start, end)` in order. Blocks are not looked at, and large ones not even read.

    Memory: a window of 1 MiB. zero_ends: a section of size zero, as the padding of Filecoin has it, is the end.
    Raises Corrupt.
    """
    window, window_start, at, wanted = b"", start, 0, _WINDOW_BYTES
    while (position := window_start + at) < end:
        try:
            head = _head(window, at, zero_ends)
        except varint.CutShort as error:
            if window_start + len(window) >= end:
                raise _corrupt(archive, error, position, end) from error
            window = archive.read_at(position, min(end, position + wanted))
            window_start, at = position, 0
            continue
        except ValueError as error:
            raise _corrupt(archive, error, position, end) from error
        if head is None:
            return
        cid_at, data_at, section_end = head
        if window_start + section_end > end:
            message = f"a section of {section_end - at:,} bytes goes beyond the end of the data at byte {end}"
            raise Corrupt(message, chunk=archive.name, byte=position)
        yield Section(position, window[cid_at:data_at], window_start + data_at, window_start + section_end)
        wanted = _SMALL_WINDOW_BYTES if section_end - at > _LARGE_SECTION_BYTES else _WINDOW_BYTES
        if section_end >= len(window):
            window, window_start, at = b"", window_start + section_end, 0
        else:
            at = section_end


def _corrupt(archive: RandomReader, error: ValueError, byte: int, end: int) -> Corrupt:
    roots = roots_at(archive, byte, end)
    if roots is not None:
        named = ", ".join(map(text_of, roots[:_SHOWN_ROOTS])) or "none"
        message = f"another CAR begins here, and the header of the first does not name its roots ({named})"
        cut = "two archives were concatenated: cut them apart at this byte"
        return Corrupt(message, chunk=archive.name, byte=byte, hint=cut)
    padding = "--zero-padding ends the archive here" if isinstance(error, _ZeroSection) else None
    return Corrupt(f"no section of a CAR: {error}", chunk=archive.name, byte=byte, hint=padding)


class SectionStream:
    """Sections with their blocks out of a stream of bytes. Memory: one section, at most 8 MiB, and one of the
    stream's blocks."""

    def __init__(self, stream: Iterator[bytes]) -> None:
        self._stream = stream
        self._buffer = b""
        self._at = 0

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """CID and block of each. Raises ValueError, and CutShort if the stream ends within a section."""
        while self._fill(1):
            self._fill(MAX_HEAD_BYTES)  # fewer are there if it is the last section
            head = _head(self._buffer, self._at, zero_ends=False)
            assert head is not None  # noqa: S101 - only zero_ends gives None
            cid_at, data_at, end = (place - self._at for place in head)
            if not self._fill(end):
                raise varint.CutShort("the bytes end within a section")
            base = self._at
            yield self._buffer[base + cid_at : base + data_at], self._buffer[base + data_at : base + end]
            self._at = base + end

    def _fill(self, size_bytes: int) -> bool:
        """Whether so many bytes are there."""
        if len(self._buffer) - self._at >= size_bytes:
            return True
        parts = [self._buffer[self._at :]]
        count = len(parts[0])
        while count < size_bytes and (block := next(self._stream, None)) is not None:
            parts.append(block)
            count += len(block)
        self._buffer, self._at = b"".join(parts), 0
        return count >= size_bytes

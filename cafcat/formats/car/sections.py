"""Reads the sections of a CAR: `uvarint(size of CID and block) | CID | block`, back to back in the payload."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.car import varint
from cafcat.formats.car.cid import MAX_CID_BYTES, cid_end, cid_to_text
from cafcat.formats.car.header import roots_at

__all__ = ["MAX_HEAD_BYTES", "MAX_SECTION_BYTES", "Section", "SectionStream", "scan"]

MAX_SECTION_BYTES: Final = 8 << 20
"""Largest size in bytes of CID and block together. Larger sections are refused, as by go-car."""
MAX_HEAD_BYTES: Final = varint.MAX_VARINT_BYTES + MAX_CID_BYTES
"""Largest size in bytes of the part of a section before its block."""
_WINDOW_BYTES: Final = 1 << 20
_SMALL_WINDOW_BYTES: Final = 16 << 10
_LARGE_SECTION_BYTES: Final = 256 << 10
_SHOWN_ROOTS: Final = 3
"""Number of roots that an error message names."""


class Section(NamedTuple):
    """A section of a CAR: the CID and the position of a block, in bytes from the start of the archive.

    Attributes:
        start: start of the section.
        cid: CID of the block.
        data_start: start of the block itself.
        data_end: end of the block and of the section.
    """

    start: int
    cid: bytes
    data_start: int
    data_end: int


class _ZeroSection(ValueError):
    """A section of a CAR has the size zero, perhaps because the archive is padded with zeros."""


def _parse_head(window: bytes, offset: int, zero_padding: bool) -> tuple[int, int, int] | None:
    """Parse the head (size and CID) of the section at `offset`.

    Returns:
        The offsets of the CID, of the block, and of the end of the section. None for a zero byte that ends the
        payload (only with `zero_padding`).

    Raises:
        Truncated: the window ends within the head.
        ValueError: the section is invalid.
    """
    size_bytes, cid_offset = varint.read(window, offset)
    if size_bytes > MAX_SECTION_BYTES:
        raise ValueError(f"the section has {size_bytes:,} bytes, but at most {MAX_SECTION_BYTES:,} are supported")
    if not size_bytes:
        if zero_padding:
            return None
        raise _ZeroSection("the section has the size 0")
    end = cid_offset + size_bytes
    data_offset = cid_end(window, cid_offset)
    if data_offset > end:
        raise ValueError("the CID ends after its section")
    return cid_offset, data_offset, end


def scan(archive: RandomReader, start: int, end: int, *, zero_padding: bool = False) -> Iterator[Section]:
    """Yield the sections of `[start, end)` in order. Blocks are not checked, and large ones are mostly not read.

    Memory: a window of 1 MiB.

    Args:
        archive: the archive.
        start: start of the first section in bytes.
        end: end of the payload in bytes.
        zero_padding: if True, a section of size zero is the end, as in archives that Filecoin pads. If False, it
            raises Corrupt.

    Raises:
        Corrupt: a section is invalid or incomplete, or another CAR begins in its place.
    """
    window, window_start, offset, window_bytes = b"", start, 0, _WINDOW_BYTES
    while (position := window_start + offset) < end:
        try:
            head = _parse_head(window, offset, zero_padding)
        except varint.Truncated as error:
            if window_start + len(window) >= end:
                raise _corrupt(archive, error, position, end) from error
            window = archive.read_at(position, min(end, position + window_bytes))
            window_start, offset = position, 0
            continue
        except ValueError as error:
            raise _corrupt(archive, error, position, end) from error
        if head is None:
            return
        cid_offset, data_offset, section_end = head
        if window_start + section_end > end:
            message = f"a section of {section_end - offset:,} bytes exceeds the data, which ends at byte {end}"
            raise Corrupt(message, chunk=archive.name, byte=position)
        yield Section(
            position, window[cid_offset:data_offset], window_start + data_offset, window_start + section_end
        )
        window_bytes = _SMALL_WINDOW_BYTES if section_end - offset > _LARGE_SECTION_BYTES else _WINDOW_BYTES
        if section_end >= len(window):
            window, window_start, offset = b"", window_start + section_end, 0
        else:
            offset = section_end


def _corrupt(archive: RandomReader, error: ValueError, byte: int, end: int) -> Corrupt:
    roots = roots_at(archive, byte, end)
    if roots is not None:
        named = ", ".join(map(cid_to_text, roots[:_SHOWN_ROOTS])) or "none"
        message = f"another CAR begins here, whose roots ({named}) are missing from the header of the first CAR"
        split_hint = "two archives were concatenated: split the file at this byte"
        return Corrupt(message, chunk=archive.name, byte=byte, hint=split_hint)
    hint = None
    if isinstance(error, _ZeroSection):
        hint = "if the archive is padded with zeros, use --zero-padding to end it here"
    return Corrupt(f"not a valid section of a CAR: {error}", chunk=archive.name, byte=byte, hint=hint)


class SectionStream:
    """Reads consecutive sections of a CAR from a stream of bytes. A section has the CID of a block, and the block.

    The stream is a part of a CAR without its header, such as the bytes of one entry. A section above 8 MiB raises
    ValueError.
    """

    def __init__(self, stream: Iterator[bytes]) -> None:
        """Prepare to read a stream, given in blocks of any size, that begins with a section."""
        self._stream = stream
        self._buffer = b""
        self._offset = 0

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the CID and the block of each section, in order. Blocks are not checked.

        Raises:
            Truncated: the stream ends within a section.
            ValueError: a section is invalid.
        """
        while self._ensure_buffered(1):
            self._ensure_buffered(MAX_HEAD_BYTES)  # the last section may be shorter
            head = _parse_head(self._buffer, self._offset, zero_padding=False)
            assert head is not None  # noqa: S101 - None is returned only with zero_padding
            cid_offset, data_offset, end = (position - self._offset for position in head)
            if not self._ensure_buffered(end):
                raise varint.Truncated("the data ends within a section")
            base = self._offset
            yield (
                self._buffer[base + cid_offset : base + data_offset],
                self._buffer[base + data_offset : base + end],
            )
            self._offset = base + end

    def _ensure_buffered(self, size_bytes: int) -> bool:
        """Read from the stream until `size_bytes` bytes are buffered. Return False if the stream ends before."""
        if len(self._buffer) - self._offset >= size_bytes:
            return True
        parts = [self._buffer[self._offset :]]
        count = len(parts[0])
        while count < size_bytes and (block := next(self._stream, None)) is not None:
            parts.append(block)
            count += len(block)
        self._buffer, self._offset = b"".join(parts), 0
        return count >= size_bytes

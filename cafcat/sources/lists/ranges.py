"""Reads a range of a list of names: all names whose first byte is in the range."""

from collections.abc import Iterator
from typing import BinaryIO

from cafcat.sources.names import LIST_BLOCK_BYTES, list_blocks
from cafcat.sources.parts import Part

__all__ = ["blocks_between"]


def blocks_between(stream: BinaryIO, part: Part, delimiter: bytes) -> Iterator[bytes]:
    """Yield the bytes of all names that begin in a range of a list, in blocks.

    Args:
        stream: The list, at its beginning. A range that does not begin there needs a stream that can seek.
        part: The range, from offset `after` up to, not including, offset `through`, as decimal numbers of bytes.
        delimiter: The byte that ends a name.

    Raises:
        OSError: The list cannot be read.
    """
    begin = int(part.after or 0)
    if begin:
        begin = _next_begin(stream, begin, delimiter)
    end = None if part.through is None else int(part.through)
    if end is not None and begin >= end:
        return
    for block in list_blocks(stream):
        if end is not None and begin + len(block) >= end:
            # The name that ends here is the last one that begins before the end of the range.
            last = block.find(delimiter, max(0, end - begin - 1))
            if last >= 0:
                yield block[: last + 1]
                return
        yield block
        begin += len(block)


def _next_begin(stream: BinaryIO, offset: int, delimiter: bytes) -> int:
    """Seek to the first name that begins at an offset or after it, and return where it begins."""
    position = stream.seek(offset - 1)
    while block := stream.read(LIST_BLOCK_BYTES):
        found = block.find(delimiter)
        if found >= 0:
            return stream.seek(position + found + 1)
        position += len(block)
    return position

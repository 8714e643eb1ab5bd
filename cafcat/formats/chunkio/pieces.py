"""How cafcat keeps files and their index in records: which record is what, and where each ends.

A file is one record, or several in a row of 1 MiB each but for the last; so is the text of the index, and after it
comes an end mark, a record without content. User data tells them apart: eight bytes of a word, and a number.
"""

from typing import Final, NamedTuple

from cafcat.formats.chunkio.metering import end_position, is_position, offset_at, position_of
from cafcat.formats.chunkio.records import HEADER_BYTES

__all__ = [
    "PIECE_BYTES",
    "Layout",
    "content_bytes_of",
    "end_mark",
    "end_mark_begin",
    "file_mark",
    "finalized_size",
    "index_begin_of",
    "index_mark",
    "is_own",
    "payload_bytes",
    "piece_count",
    "pieces_end",
]

PIECE_BYTES: Final = 1 << 20
"""Content of a record. Small enough to be kept, and checked before any of it is given away."""

_FILE: Final = b"cafcat1F"
_INDEX: Final = b"cafcat1I"
_END: Final = b"cafcat1E"


def file_mark(offset: int) -> bytes:
    """User data of a piece of a file. offset: of the piece in it, in bytes."""
    return _FILE + offset.to_bytes(8, "little")


def index_mark(begin: int) -> bytes:
    """User data of a piece of the index, which says itself where it begins: a copy elsewhere is none."""
    return _INDEX + begin.to_bytes(8, "little")


def end_mark(index_begin: int) -> bytes:
    """User data of the last record. index_begin: position of the first piece of the index."""
    return _END + index_begin.to_bytes(8, "little")


def index_begin_of(user_data: bytes) -> int | None:
    """The way back from an end mark; None for other records."""
    return int.from_bytes(user_data[8:], "little") if user_data.startswith(_END) else None


def is_own(user_data: bytes) -> bool:
    """Whether cafcat wrote the record."""
    return user_data[:8] in (_FILE, _INDEX, _END)


def piece_count(content_bytes: int) -> int:
    """Records that so many bytes take: at least one."""
    return -(-content_bytes // PIECE_BYTES) or 1


def payload_bytes(content_bytes: int) -> int:
    """Payload of the pieces of so many bytes."""
    return content_bytes + HEADER_BYTES * piece_count(content_bytes)


def pieces_end(begin: int, content_bytes: int) -> int:
    """Where the pieces of so many bytes end that begin at a position."""
    return end_position(begin, payload_bytes(content_bytes))


def content_bytes_of(begin: int, end: int) -> int | None:
    """How many bytes have the pieces that begin and end there; None if no pieces do."""
    if not (is_position(begin) and is_position(end) and begin < end):
        return None
    size_bytes = offset_at(end) - offset_at(begin)
    count = -(-size_bytes // (PIECE_BYTES + HEADER_BYTES))
    content_bytes = size_bytes - HEADER_BYTES * count
    return content_bytes if content_bytes >= 0 and piece_count(content_bytes) == count else None


def finalized_size(offset: int, index_bytes: int) -> int:
    """Size of a chunk whose index has so much payload before it, and so many bytes of text."""
    return position_of(offset + payload_bytes(index_bytes) + HEADER_BYTES)


class Layout(NamedTuple):
    """Where the index of a chunk is: `[index_begin, index_end)`, and how many bytes of text it has. The end mark
    is what follows."""

    index_begin: int
    index_end: int
    index_bytes: int


def end_mark_begin(size_bytes: int) -> int | None:
    """Where the end mark of a chunk of this size begins, if it can have one."""
    if not is_position(size_bytes) or offset_at(size_bytes) < HEADER_BYTES:
        return None
    return position_of(offset_at(size_bytes) - HEADER_BYTES)

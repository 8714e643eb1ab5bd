"""The rules by which cafcat stores files and their index in the records of a ChunkIO archive.

A file is one record, or several adjacent ones, each with 1 MiB of content except the last. The text of the index is
stored in the same way. An end mark follows, a record without content. The user data of a record identifies its kind
by a word of eight bytes, followed by a number: an offset in the file, or a position in the archive.
"""

from typing import Final, NamedTuple

from cafcat.formats.chunkio.metering import end_position, is_position, offset_to_position, position_to_offset
from cafcat.formats.chunkio.records import HEADER_BYTES

__all__ = [
    "PIECE_BYTES",
    "IndexLayout",
    "content_bytes_of",
    "end_mark",
    "end_mark_begin",
    "file_mark",
    "finalized_size",
    "index_begin_of",
    "index_mark",
    "is_cafcat_record",
    "payload_bytes",
    "piece_count",
    "pieces_end",
]

PIECE_BYTES: Final = 1 << 20
"""Size in bytes of the content of a record; the last record of a file, or of the index, may have less. A record of
this size can be buffered, and checked before any of its content is returned."""

_FILE: Final = b"cafcat1F"
_INDEX: Final = b"cafcat1I"
_END: Final = b"cafcat1E"


def file_mark(offset: int) -> bytes:
    """Return the 16 bytes of user data of a record that holds a piece of a file.

    Args:
        offset: offset of the piece in the file, in bytes.
    """
    return _FILE + offset.to_bytes(8, "little")


def index_mark(begin: int) -> bytes:
    """Return the 16 bytes of user data of a record that holds a piece of the index.

    They include the position of the record, so that a copy at another position is not mistaken for an index.

    Args:
        begin: position of the record in bytes.
    """
    return _INDEX + begin.to_bytes(8, "little")


def end_mark(index_begin: int) -> bytes:
    """Return the 16 bytes of user data of the end mark, the last record of a finished archive.

    Args:
        index_begin: position of the first piece of the index in bytes.
    """
    return _END + index_begin.to_bytes(8, "little")


def index_begin_of(user_data: bytes) -> int | None:
    """Return the position of the index that the user data of an end mark stores, or None for other user data."""
    return int.from_bytes(user_data[8:], "little") if user_data.startswith(_END) else None


def is_cafcat_record(user_data: bytes) -> bool:
    """Return True if the user data identifies a record of an archive that `ChunkIoWriter` wrote."""
    return user_data[:8] in (_FILE, _INDEX, _END)


def piece_count(content_bytes: int) -> int:
    """Return the number of records for a file, or an index, of `content_bytes` bytes: at least 1."""
    return -(-content_bytes // PIECE_BYTES) or 1


def payload_bytes(content_bytes: int) -> int:
    """Return the size in bytes of all records of a file, or an index, of `content_bytes` bytes, without meters."""
    return content_bytes + HEADER_BYTES * piece_count(content_bytes)


def pieces_end(begin: int, content_bytes: int) -> int:
    """Return the end position of the records of a file, or an index, of `content_bytes` bytes, begun at `begin`."""
    return end_position(begin, payload_bytes(content_bytes))


def content_bytes_of(begin: int, end: int) -> int | None:
    """Return the size in bytes of the file, or index, whose records fill the positions `[begin, end)`.

    Return None if no such records can have this span.
    """
    if not (is_position(begin) and is_position(end) and begin < end):
        return None
    size_bytes = position_to_offset(end) - position_to_offset(begin)
    count = -(-size_bytes // (PIECE_BYTES + HEADER_BYTES))
    content_bytes = size_bytes - HEADER_BYTES * count
    return content_bytes if content_bytes >= 0 and piece_count(content_bytes) == count else None


def finalized_size(offset: int, index_bytes: int) -> int:
    """Return the size in bytes of an archive after its index and its end mark are written.

    Args:
        offset: number of payload bytes (bytes of records, without meters) before the index.
        index_bytes: size of the text of the index in bytes.
    """
    return offset_to_position(offset + payload_bytes(index_bytes) + HEADER_BYTES)


class IndexLayout(NamedTuple):
    """The position of the index in an archive of cafcat: `[index_begin, index_end)`, followed by the end mark.

    Attributes:
        index_begin: position of the first record of the index, in bytes.
        index_end: end of the last record of the index, in bytes.
        index_bytes: size of the index's text in bytes, without headers and meters.
    """

    index_begin: int
    index_end: int
    index_bytes: int


def end_mark_begin(size_bytes: int) -> int | None:
    """Return the position of the end mark in an archive of this size; None if no end mark can end there."""
    if not is_position(size_bytes) or position_to_offset(size_bytes) < HEADER_BYTES:
        return None
    return offset_to_position(position_to_offset(size_bytes) - HEADER_BYTES)

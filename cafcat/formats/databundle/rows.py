"""Encodes the rows (keys and values) of files and records, for the table of a chunk or the index of a bundle."""

from typing import NamedTuple

from cafcat.formats.databundle.layout import file_key, record_key
from cafcat.formats.databundle.messages import FILE_TYPE_URL, REGULAR, messages
from cafcat.formats.index_text import longest_text_bytes
from cafcat.support.quantities import is_int64

__all__ = ["MAX_RECORD_ROW_BYTES", "PackedFile", "file_row", "max_row_bytes", "record_row", "row"]

MAX_RECORD_ROW_BYTES = 64
"""Upper bound in bytes for the row of a record."""
_LONGEST_MEMBERS = 1024
"""Upper bound in bytes for the row of a file without its path: numbers, 24 runs of zeros, tags and sizes (at most
760)."""


class PackedFile(NamedTuple):
    """The position of a packed file in its archive, and its decoding.

    Attributes:
        start_byte: start of the file's span, in bytes from the start of the archive.
        end_byte: end of the file's span.
        offset: offset of the file in the data of all records, in bytes before compression.
        decoding: the value of `Entry.decoding`; None for an empty file.
    """

    start_byte: int
    end_byte: int
    offset: int
    decoding: str | None


def row(key: bytes, value: bytes) -> bytes:
    """Return a row with this key and value as an encoded field of the message BundleMetadataTable."""
    classes = messages()
    encoded: bytes = classes.Table(rows=[classes.Row(key=key, value=value)]).SerializeToString()
    return encoded


def file_row(path: str, packed: PackedFile, size_bytes: int, checksum: int, modified_ns: int | None) -> bytes:
    """Return the encoded row of a file, for the table of a chunk.

    Args:
        path: name of the entry.
        packed: the position of the file.
        size_bytes: size of the file in bytes.
        checksum: CRC-32C of the file.
        modified_ns: modification time in nanoseconds since 1970-01-01 UTC. Left out if it is None or does not fit a
            signed 64-bit number.
    """
    classes = messages()
    file = classes.BundleFile(
        start_byte=packed.start_byte, end_byte=packed.end_byte, decoding=packed.decoding or ""
    )
    if modified_ns is not None and is_int64(modified_ns):
        file.modified_ns = modified_ns
    metadata = classes.FileMetadata(
        type=REGULAR,
        shard_uncompressed_offset=packed.offset,
        uncompressed_size=size_bytes,
        crc32c=checksum,
        user_data=classes.Any(type_url=FILE_TYPE_URL, value=file.SerializeToString()),
    )
    return row(file_key(path), metadata.SerializeToString())


def record_row(offset: int, byte_offset: int | None, shard: int = 0) -> bytes:
    """Return the encoded row of a record, for the table of a chunk.

    Args:
        offset: offset of the record in the data of its shard, in bytes before compression.
        byte_offset: position of the record in bytes after the first data byte; None for a record of zeros.
        shard: number of the shard.
    """
    return row(record_key(shard, offset), record_value(offset, byte_offset, shard))


def record_value(offset: int, byte_offset: int | None, shard: int) -> bytes:
    """Return the value of the row of a record: an encoded BundleRecordMetadata.

    Args:
        offset: offset of the record in the data of its shard, in bytes before compression.
        byte_offset: position of the record in bytes after the first data byte; None for a record of zeros.
        shard: number of the shard.
    """
    record = messages().RecordMetadata(shard_index=shard, shard_uncompressed_offset=offset)
    if byte_offset is None:
        record.all_zeros = True
    else:
        record.shard_byte_offset = byte_offset
    encoded: bytes = record.SerializeToString()
    return encoded


def max_row_bytes(path: str) -> int:
    """Return an upper bound in bytes for the row of a file with this path.

    Raises:
        Refused: the path cannot be stored.
    """
    return longest_text_bytes(path) + _LONGEST_MEMBERS

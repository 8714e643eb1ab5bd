"""Rows of metadata: made for the table at the end of a chunk, or for the index of a bundle."""

from cafcat.formats.databundle.layout import file_key, record_key
from cafcat.formats.databundle.messages import FILE_TYPE_URL, REGULAR, messages
from cafcat.formats.databundle.packing import Packed
from cafcat.formats.index_text import longest_text_bytes

__all__ = ["LONGEST_RECORD_ROW", "file_row", "longest_row_bytes", "record_row", "row"]

LONGEST_RECORD_ROW = 64
_LONGEST_MEMBERS = 1024
"""Numbers of a file, 24 runs of zeros, tags and sizes; 760 bytes at most."""

_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1


def row(key: bytes, value: bytes) -> bytes:
    """As the table has it: a field of BundleMetadataTable."""
    made = messages()
    encoded: bytes = made.Table(rows=[made.Row(key=key, value=value)]).SerializeToString()
    return encoded


def file_row(path: str, packed: Packed, size_bytes: int, checksum: int, modified_ns: int | None) -> bytes:
    """A file of a chunk. A time that is no signed 64-bit number of nanoseconds is left out."""
    made = messages()
    file = made.BundleFile(start_byte=packed.start_byte, end_byte=packed.end_byte, decoding=packed.decoding or "")
    if modified_ns is not None and _INT64_MIN <= modified_ns <= _INT64_MAX:
        file.modified_ns = modified_ns
    metadata = made.FileMetadata(
        type=REGULAR,
        shard_uncompressed_offset=packed.offset,
        uncompressed_size=size_bytes,
        crc32c=checksum,
        user_data=made.Any(type_url=FILE_TYPE_URL, value=file.SerializeToString()),
    )
    return row(file_key(path), metadata.SerializeToString())


def record_row(offset: int, byte_offset: int | None, shard: int = 0) -> bytes:
    """A record. byte_offset: from the first data byte; None: all zeros."""
    return row(record_key(shard, offset), record_value(offset, byte_offset, shard))


def record_value(offset: int, byte_offset: int | None, shard: int) -> bytes:
    """BundleRecordMetadata."""
    record = messages().RecordMetadata(shard_index=shard, shard_uncompressed_offset=offset)
    if byte_offset is None:
        record.all_zeros = True
    else:
        record.shard_byte_offset = byte_offset
    encoded: bytes = record.SerializeToString()
    return encoded


def longest_row_bytes(path: str) -> int:
    """Size in bytes that no row of a file of this path exceeds. Raises Refused."""
    return longest_text_bytes(path) + _LONGEST_MEMBERS

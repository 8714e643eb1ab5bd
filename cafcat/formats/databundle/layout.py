"""Encodes and parses the parts of a DataBundle shard file: head, trailer, keys of rows, configuration."""

import struct
from typing import Any, Final, NamedTuple

from cafcat.formats.databundle.messages import messages

__all__ = [
    "ALIGNMENT",
    "BUNDLE_CONFIG",
    "HEAD_BYTES",
    "LARGE_BYTES",
    "MAGIC",
    "MAX_OFFSET",
    "MAX_RECORD_BYTES",
    "RECORD_BYTES",
    "TRAILER_BYTES",
    "VERSION_MAGIC",
    "ZEROS",
    "Trailer",
    "config_key",
    "encode_config",
    "encode_head",
    "file_key",
    "padding_after",
    "parse_file_key",
    "parse_head",
    "parse_trailer",
    "record_key",
    "shard_name",
    "trailer",
]

MAGIC: Final = b"daBS"
"""The first bytes of a shard file."""
VERSION_MAGIC: Final = "daBundleV1"
"""The value of BundleConfig.version_magic."""
ALIGNMENT: Final = 4096
"""Records that cafcat writes begin at multiples of this many bytes."""
RECORD_BYTES: Final = 256 << 10
"""Size in bytes, before compression, of the records that cafcat writes."""
MAX_RECORD_BYTES: Final = 8 << 20
"""Largest record of other programs in bytes, before compression, that is read."""
LARGE_BYTES: Final = 1 << 20
"""A file of at least this size in bytes begins a new record."""
HEAD: Final = struct.Struct("<4sII")
"""The magic number, the size of the header, and the position of the first data byte."""
HEAD_BYTES: Final = ALIGNMENT
"""Size in bytes of the head of shards that cafcat writes. The records follow."""
ZEROS: Final = bytes(RECORD_BYTES)
"""The content of a zero record."""
MAX_OFFSET: Final = (1 << 62) - 1
"""Largest offset in the data of a shard, in bytes before or after compression."""

BUNDLE_CONFIG: Final = 1
"""First byte of the key of the configuration row."""
FILE_METADATA: Final = 2
"""First byte of the keys of file rows."""
SHARD_METADATA: Final = 3
"""First byte of the keys of record rows."""

_NUMBERS: Final = struct.Struct(">BQQ")
# The trailer is field 15 of BundleMetadataTable: tag, size, start of the table, start of the data, CRC-32C of the
# rows, and a magic word. So table and trailer are one message, and other programs skip the unknown field.
_TRAILER: Final = struct.Struct("<2sQII8s")
_TRAILER_TAG: Final = b"\x7a\x18"
_TRAILER_WORD: Final = b"daBSmeta"
TRAILER_BYTES: Final = _TRAILER.size


class Trailer(NamedTuple):
    """The last bytes of a shard file that cafcat wrote, which locate its table of metadata.

    Attributes:
        table_start: start of the table in bytes.
        data_start: start of the records in bytes.
        crc32c: CRC-32C of the rows between `table_start` and the trailer.
    """

    table_start: int
    data_start: int
    crc32c: int


def trailer(table_start: int, checksum: int) -> bytes:
    """Return the trailer, the last bytes of a shard file that cafcat writes.

    Args:
        table_start: start of the table of metadata in bytes.
        checksum: CRC-32C of the table's rows.
    """
    return _TRAILER.pack(_TRAILER_TAG, table_start, HEAD_BYTES, checksum, _TRAILER_WORD)


def parse_trailer(data: bytes, size_bytes: int) -> Trailer | None:
    """Parse the trailer of a shard file that cafcat wrote. Return None if the bytes are not a valid trailer.

    Args:
        data: the last bytes of the file, as many as a trailer has.
        size_bytes: size of the file in bytes.
    """
    if len(data) != TRAILER_BYTES:
        return None
    tag, table_start, data_start, checksum, word = _TRAILER.unpack(data)
    if tag != _TRAILER_TAG or word != _TRAILER_WORD:
        return None
    if data_start != HEAD_BYTES or not data_start <= table_start <= size_bytes - TRAILER_BYTES:
        return None
    return Trailer(table_start, data_start, checksum)


def encode_head(compression: int, *, shard: int = 0, shards: int = 1, metadata_at_eof: bool) -> bytes:
    """Return the first 4096 bytes of a shard file.

    Args:
        compression: the compression method, a value of `compression.METHODS`.
        shard: number of the shard, from 0.
        shards: number of shards in the bundle.
        metadata_at_eof: True if the metadata is at the end of the file, False if it is in another file.
    """
    header = messages().ShardHeader(
        shard_index=shard,
        shard_count=shards,
        record_size=RECORD_BYTES,
        record_alignment=ALIGNMENT,
        compression_method=compression,
    )
    if metadata_at_eof:
        header.metadata_at_eof = True
    else:
        header.external_metadata = True
    encoded = header.SerializeToString()
    head: bytes = HEAD.pack(MAGIC, len(encoded), HEAD_BYTES) + encoded
    return head.ljust(HEAD_BYTES, b"\0")


def parse_head(data: bytes) -> Any:
    """Return the protobuf message BundleShardHeader of a shard file with these first bytes.

    Raises:
        ValueError: the head is invalid, or longer than `data`.
        NotInstalled: protobuf is not installed.
    """
    if len(data) < HEAD.size or not data.startswith(MAGIC):
        raise ValueError("the file does not begin with the magic number of a shard")
    _, header_bytes, data_start = HEAD.unpack_from(data)
    if HEAD.size + header_bytes > min(data_start, len(data)):
        raise ValueError("the header is incomplete")
    try:
        return messages().ShardHeader.FromString(data[HEAD.size : HEAD.size + header_bytes])
    except messages().DecodeError as error:
        raise ValueError("the header is not a valid protobuf message") from error


def padding_after(position: int) -> int:
    """Return the number of zero bytes between a position and the next possible start of a record."""
    return -position % ALIGNMENT


def shard_name(shard: int) -> str:
    """Return the file name of a shard in a bundle, such as "shard-00000003", as in the published design."""
    return f"shard-{shard:08}"


def config_key() -> bytes:
    """Return the key of the row with the configuration of the bundle (BUNDLE_CONFIG)."""
    return bytes([BUNDLE_CONFIG])


def encode_config(compression: int, shards: int) -> bytes:
    """Return the value of the configuration row: an encoded BundleConfig.

    Args:
        compression: the compression method, a value of `compression.METHODS`.
        shards: number of shards in the bundle.
    """
    encoded: bytes = (
        messages()
        .BundleConfig(
            version_magic=VERSION_MAGIC,
            block_size=ALIGNMENT,
            record_size=RECORD_BYTES,
            compression_method=compression,
            shard_count=shards,
        )
        .SerializeToString()
    )
    return encoded


def file_key(path: str) -> bytes:
    """Return the key of the row of the file `path`: table number, folder with its slash, name.

    Each string ends with 00 00; a byte 00 in it becomes 00 ff. A path "a/" has the name "".
    """
    at = path.rfind("/") + 1
    folder, name = (part.encode().replace(b"\0", b"\0\xff") for part in (path[:at], path[at:]))
    return b"%c%b\0\0%b\0\0" % (FILE_METADATA, folder, name)


def parse_file_key(key: bytes) -> str | None:
    """Return the path in the key of the row of a file, or None if the key is that of another kind of row.

    Raises:
        ValueError: the key is malformed, or the path is not valid UTF-8 or has a NUL.
    """
    if key[:1] != bytes([FILE_METADATA]):
        return None
    if b"\xff" in key:
        raise ValueError("the name contains a NUL or is not valid UTF-8")
    parts = key[1:].split(b"\0\0")
    if len(parts) != 3 or parts[2] or b"\0" in parts[0] + parts[1]:
        raise ValueError("the key does not consist of two strings")
    folder, name = parts[0].decode(), parts[1].decode()
    if "/" in name or (folder and not folder.endswith("/")):
        raise ValueError("the key does not consist of a folder and a name")
    return folder + name


def record_key(shard: int, offset: int) -> bytes:
    """Return the key of the row of a record: table number, number of the shard, and offset before compression.

    The numbers are big-endian, so that the order of the keys is that of the records.
    """
    return _NUMBERS.pack(SHARD_METADATA, shard, offset)

"""What stands where in a shard file: its head, its end, and the keys of its rows."""

import struct
from typing import Any, Final, NamedTuple

from cafcat.formats.databundle.messages import messages

__all__ = [
    "ALIGNMENT",
    "BUNDLE_CONFIG",
    "HEAD_BYTES",
    "LARGE_BYTES",
    "MAGIC",
    "MOST_OFFSET",
    "MOST_RECORD_BYTES",
    "RECORD_BYTES",
    "TRAILER_BYTES",
    "VERSION_MAGIC",
    "ZEROS",
    "Trailer",
    "config_key",
    "config_of",
    "file_key",
    "head_of",
    "padding_after",
    "parse_head",
    "parse_trailer",
    "path_of",
    "record_key",
    "shard_name",
    "trailer",
]

MAGIC: Final = b"daBS"
VERSION_MAGIC: Final = "daBundleV1"
ALIGNMENT: Final = 4096
RECORD_BYTES: Final = 256 << 10
MOST_RECORD_BYTES: Final = 8 << 20
"""Of records that others write, before compression."""
LARGE_BYTES: Final = 1 << 20
"""A file of so many bytes or more begins a record of its own."""
HEAD: Final = struct.Struct("<4sII")
HEAD_BYTES: Final = ALIGNMENT
"""Of the shards that cafcat writes: records begin there."""
ZEROS: Final = bytes(RECORD_BYTES)
MOST_OFFSET: Final = (1 << 62) - 1

BUNDLE_CONFIG: Final = 1
FILE_METADATA: Final = 2
SHARD_METADATA: Final = 3
"""Tables: the first byte of a key."""

_NUMBERS: Final = struct.Struct(">BQQ")
# Field 15 of BundleMetadataTable: its tag, its size, then where the table begins, where data begin, the CRC-32C of
# the rows, and a word. So table and trailer are one message, in which others pass over a field they do not know.
_TRAILER: Final = struct.Struct("<2sQII8s")
_TRAILER_TAG: Final = b"\x7a\x18"
_TRAILER_WORD: Final = b"daBSmeta"
TRAILER_BYTES: Final = _TRAILER.size


class Trailer(NamedTuple):
    """Positions in the file, and the CRC-32C of the rows between table_start and the trailer."""

    table_start: int
    data_start: int
    crc32c: int


def trailer(table_start: int, checksum: int) -> bytes:
    """The last bytes of a shard that cafcat writes as a chunk."""
    return _TRAILER.pack(_TRAILER_TAG, table_start, HEAD_BYTES, checksum, _TRAILER_WORD)


def parse_trailer(data: bytes, size_bytes: int) -> Trailer | None:
    """None if these last bytes of a file of this size are no trailer."""
    if len(data) != TRAILER_BYTES:
        return None
    tag, table_start, data_start, checksum, word = _TRAILER.unpack(data)
    if tag != _TRAILER_TAG or word != _TRAILER_WORD:
        return None
    if data_start != HEAD_BYTES or not data_start <= table_start <= size_bytes - TRAILER_BYTES:
        return None
    return Trailer(table_start, data_start, checksum)


def head_of(compression: int, *, shard: int = 0, shards: int = 1, metadata_at_eof: bool) -> bytes:
    """The first 4096 bytes of a shard; its metadata are at its end, or elsewhere."""
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
    """The BundleShardHeader of a file that begins so. Raises ValueError; NotInstalled without protobuf."""
    if len(data) < HEAD.size or not data.startswith(MAGIC):
        raise ValueError("it does not begin as one")
    _, header_bytes, data_start = HEAD.unpack_from(data)
    if HEAD.size + header_bytes > min(data_start, len(data)):
        raise ValueError("its header ends before it should")
    try:
        return messages().ShardHeader.FromString(data[HEAD.size : HEAD.size + header_bytes])
    except messages().DecodeError as error:
        raise ValueError("its header cannot be read") from error


def padding_after(position: int) -> int:
    """Zero bytes from a position to where a record may begin."""
    return -position % ALIGNMENT


def shard_name(shard: int) -> str:
    """Of a shard file of a bundle."""
    return f"shard-{shard:08}"


def config_key() -> bytes:
    return bytes([BUNDLE_CONFIG])


def config_of(compression: int, shards: int) -> bytes:
    """BundleConfig, the value of that key."""
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
    """Table, folder with its slash, name: strings with 00 as 00 ff, and 00 00 behind. "a/" has the name ""."""
    at = path.rfind("/") + 1
    folder, name = (part.encode().replace(b"\0", b"\0\xff") for part in (path[:at], path[at:]))
    return b"%c%b\0\0%b\0\0" % (FILE_METADATA, folder, name)


def path_of(key: bytes) -> str | None:
    """The way back; None if it is a key of another table. Raises ValueError if nobody writes such a key."""
    if key[:1] != bytes([FILE_METADATA]):
        return None
    if b"\xff" in key:
        raise ValueError("a name with NUL, or one that is not UTF-8")
    parts = key[1:].split(b"\0\0")
    if len(parts) != 3 or parts[2] or b"\0" in parts[0] + parts[1]:
        raise ValueError("no two strings")
    folder, name = parts[0].decode(), parts[1].decode()
    if "/" in name or (folder and not folder.endswith("/")):
        raise ValueError("no folder and name")
    return folder + name


def record_key(shard: int, offset: int) -> bytes:
    """Table, number of the shard, offset in its uncompressed data: big-endian, so that they are in order."""
    return _NUMBERS.pack(SHARD_METADATA, shard, offset)

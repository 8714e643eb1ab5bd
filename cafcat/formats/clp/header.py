"""Parses and packs the header of a clp-s archive: its first 64 bytes. See docs/formats/clp.md."""

import struct
from typing import Final, NamedTuple

from cafcat.errors import Corrupt, Unsupported

__all__ = ["HEADER_BYTES", "MAGIC", "Header", "parse_header"]

MAGIC: Final = b"\xfd\x2f\xc5\x30"
ZSTD: Final = 0
"""Compression type of zstd."""

_LAYOUT: Final = struct.Struct("<4sHBBQQ32sIHH")
HEADER_BYTES: Final = _LAYOUT.size
_VERSIONS: Final = ((0, 3), (0, 4), (0, 5))


class Header(NamedTuple):
    """The header of a clp-s archive.

    Attributes:
        version: major, minor and patch version.
        uncompressed_size: size of the logs in bytes, before clp-s encoded them.
        compressed_size: size of the whole archive in bytes.
        metadata_bytes: compressed size of the metadata in bytes. The metadata follows the header.
        padding: 32 bytes; the original program writes zeros.
        padding_end: the last two bytes of the header; the original program writes zeros.
    """

    version: tuple[int, int, int]
    uncompressed_size: int
    compressed_size: int
    metadata_bytes: int
    padding: bytes = bytes(32)
    padding_end: int = 0

    @property
    def files_start(self) -> int:
        """Position of the first section in bytes, after header and metadata."""
        return HEADER_BYTES + self.metadata_bytes

    def pack(self) -> bytes:
        """Encode the header: return the first 64 bytes of the archive."""
        major, minor, patch = self.version
        sizes = (self.uncompressed_size, self.compressed_size, self.padding, self.metadata_bytes)
        return _LAYOUT.pack(MAGIC, patch, minor, major, *sizes, ZSTD, self.padding_end)


def parse_header(raw: bytes, size_bytes: int, name: str) -> Header:
    """Parse and check the header of a clp-s archive.

    Args:
        raw: the first 64 bytes of the archive, or more.
        size_bytes: size of the archive in bytes.
        name: name of the archive, for messages.

    Raises:
        Corrupt: the header is invalid, or the archive is incomplete.
        Unsupported: the version or the compression is unknown.
    """
    if len(raw) < HEADER_BYTES or not raw.startswith(MAGIC):
        message = (
            f"not a clp-s archive: it does not begin with {MAGIC.hex(' ')} and a header of {HEADER_BYTES} bytes"
        )
        raise Corrupt(message, chunk=name, byte=0)
    _, patch, minor, major, log_bytes, archive_bytes, padding, metadata_bytes, compression, padding_end = (
        _LAYOUT.unpack(raw[:HEADER_BYTES])
    )
    header = Header((major, minor, patch), log_bytes, archive_bytes, metadata_bytes, padding, padding_end)
    if (major, minor) not in _VERSIONS:
        message = f"clp-s version {major}.{minor}.{patch} is not supported: cafcat reads 0.3, 0.4 and 0.5"
        raise Unsupported(message, chunk=name, byte=4)
    if compression != ZSTD:
        raise Unsupported(
            f"the archive has the compression type {compression}, expected {ZSTD} (zstd)", chunk=name, byte=60
        )
    if archive_bytes > size_bytes:
        message = (
            f"not a complete clp-s archive: it has {size_bytes:,} bytes, by its header it should have "
            f"{archive_bytes:,}"
        )
        raise Corrupt(message, chunk=name, byte=16)
    if header.files_start > archive_bytes:
        message = f"the metadata of {metadata_bytes:,} bytes exceeds the archive of {archive_bytes:,} bytes"
        raise Corrupt(message, chunk=name, byte=56)
    return header

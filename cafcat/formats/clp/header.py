"""The first 64 bytes of a clp-s archive."""

import struct
from typing import Final, NamedTuple

from cafcat.errors import Corrupt, Unsupported

__all__ = ["HEADER_BYTES", "MAGIC", "Header", "parse_header"]

MAGIC: Final = b"\xfd\x2f\xc5\x30"
ZSTD: Final = 0

_LAYOUT: Final = struct.Struct("<4sHBBQQ32sIHH")
HEADER_BYTES: Final = _LAYOUT.size
_VERSIONS: Final = ((0, 3), (0, 4), (0, 5))


class Header(NamedTuple):
    """uncompressed_size: bytes of the logs; compressed_size: of the archive, from its first byte to its last;
    metadata_bytes: of the section that follows, compressed. Both paddings are zero as the original writes them."""

    version: tuple[int, int, int]
    uncompressed_size: int
    compressed_size: int
    metadata_bytes: int
    padding: bytes = bytes(32)
    padding_end: int = 0

    @property
    def files_start(self) -> int:
        """Where the sections begin."""
        return HEADER_BYTES + self.metadata_bytes

    def pack(self) -> bytes:
        """The 64 bytes."""
        major, minor, patch = self.version
        sizes = (self.uncompressed_size, self.compressed_size, self.padding, self.metadata_bytes)
        return _LAYOUT.pack(MAGIC, patch, minor, major, *sizes, ZSTD, self.padding_end)


def parse_header(raw: bytes, size_bytes: int, name: str) -> Header:
    """The header in the first bytes of an archive of this size; name: for messages. Raises Corrupt for one that
    cannot be right, Unsupported for a version or compression that is not known."""
    if len(raw) < HEADER_BYTES or not raw.startswith(MAGIC):
        message = (
            f"not a clp-s archive: it does not begin with {MAGIC.hex(' ')} and a header of {HEADER_BYTES} bytes"
        )
        raise Corrupt(message, chunk=name, byte=0)
    _, patch, minor, major, logs, size, padding, metadata, compression, end = _LAYOUT.unpack(raw[:HEADER_BYTES])
    header = Header((major, minor, patch), logs, size, metadata, padding, end)
    if (major, minor) not in _VERSIONS:
        message = f"clp-s archive of version {major}.{minor}.{patch}: this cafcat reads 0.3, 0.4 and 0.5"
        raise Unsupported(message, chunk=name, byte=4)
    if compression != ZSTD:
        raise Unsupported(f"the archive has a compression of type {compression}, not zstd", chunk=name, byte=60)
    if size > size_bytes:
        message = f"not a whole clp-s archive: its header says {size:,} bytes, it has {size_bytes:,}"
        raise Corrupt(message, chunk=name, byte=16)
    if header.files_start > size:
        message = f"the metadata of {metadata:,} bytes would end beyond the archive's {size:,} bytes"
        raise Corrupt(message, chunk=name, byte=56)
    return header

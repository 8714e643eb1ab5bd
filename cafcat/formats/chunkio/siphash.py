"""SipHash-2-4 with the fixed key of ChunkIO. Hashes are the eight bytes that are stored in files."""

from typing import Any, Final

from siphash24 import siphash24

__all__ = ["KEY", "hasher", "siphash"]

KEY: Final = b"romkatv/chunkio1"
"""The key of ChunkIO."""


def siphash(data: bytes | bytearray | memoryview) -> bytes:
    """Return the hash: eight bytes, little-endian."""
    return siphash24(data, key=KEY).digest()  # type: ignore[no-any-return]


def hasher() -> Any:
    """Return a hash object for content in blocks: call `update(block)` for each block, then `digest()`."""
    return siphash24(key=KEY)

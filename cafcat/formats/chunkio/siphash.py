"""Computes SipHash-2-4 with the fixed key of ChunkIO. A hash is returned as the eight bytes that files store."""

from typing import Any, Final

from siphash24 import siphash24

__all__ = ["KEY", "hasher", "siphash"]

KEY: Final = b"romkatv/chunkio1"
"""The key of all hashes in ChunkIO files."""


def siphash(data: bytes | bytearray | memoryview) -> bytes:
    """Return the SipHash of the data: eight bytes, little-endian."""
    return siphash24(data, key=KEY).digest()  # type: ignore[no-any-return]


def hasher() -> Any:
    """Return an object that computes a SipHash block by block: call `update(block)` for each, then `digest()`."""
    return siphash24(key=KEY)

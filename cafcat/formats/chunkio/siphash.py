"""SipHash-2-4 with the key that ChunkIO fixes. Hashes are kept as the eight bytes that stand in files."""

from typing import Any, Final

from siphash24 import siphash24

__all__ = ["KEY", "hasher", "siphash"]

KEY: Final = b"romkatv/chunkio1"


def siphash(data: bytes | bytearray | memoryview) -> bytes:
    """The hash: eight bytes, little-endian."""
    return siphash24(data, key=KEY).digest()  # type: ignore[no-any-return]


def hasher() -> Any:
    """Of content that comes in blocks: `update(block)` for each, then `digest()`."""
    return siphash24(key=KEY)

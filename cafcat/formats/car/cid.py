"""Parses CIDs, the identifiers of blocks, and checks blocks against the hashes in their CIDs.

In this package a CID is its binary form (`bytes`). Only `cid_to_text` and `cid_from_text` convert its text form,
and `parse` returns its parts.
"""

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from cafcat.formats.car import varint

__all__ = [
    "BLAKE3",
    "CID_BYTES",
    "DAG_PB",
    "IDENTITY",
    "MAX_CID_BYTES",
    "RAW",
    "RAW_SHA256",
    "SHA256",
    "Cid",
    "block_matches",
    "can_check_hash",
    "cid_end",
    "cid_from_text",
    "cid_to_text",
    "hash_name",
    "parse",
]

MAX_CID_BYTES: Final = 2 << 10
"""Largest CID in bytes that is read."""
RAW: Final = 0x55
"""Codec of blocks of raw bytes."""
DAG_PB: Final = 0x70
"""Codec of DAG-PB nodes."""
IDENTITY: Final = 0x00
"""Code of the identity hash function: such a CID contains the block itself."""
SHA256: Final = 0x12
"""Code of the hash function SHA-256."""
RAW_SHA256: Final = b"\x01\x55\x12\x20"
"""The first bytes of the CID of a leaf: version 1, codec `RAW`, SHA-256 with a digest of 32 bytes."""
CID_BYTES: Final = 36
"""Size in bytes of a CID of version 1 with SHA-256 and a codec below 128. cafcat writes only such CIDs."""

_V0_HEAD: Final = b"\x12\x20"
_V0_BYTES: Final = 34
_USUAL_HEADS: Final = (RAW_SHA256, b"\x01\x70\x12\x20", _V0_HEAD)
_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

_Hash = Callable[[bytes], bytes]


def _from_hashlib(name: str) -> _Hash:
    new: Any = getattr(hashlib, name)
    return lambda block: new(block).digest()


def _blake2b(size_bytes: int) -> _Hash:
    return lambda block: hashlib.blake2b(block, digest_size=size_bytes).digest()


def _blake2s(size_bytes: int) -> _Hash:
    return lambda block: hashlib.blake2s(block, digest_size=size_bytes).digest()


def _shake(name: str, size_bytes: int) -> _Hash:
    new: Any = getattr(hashlib, name)
    return lambda block: new(block).digest(size_bytes)


def _identity(block: bytes) -> bytes:
    return block


_HASHES: Final[dict[int, _Hash]] = {
    IDENTITY: _identity,
    SHA256: _from_hashlib("sha256"),
    0x13: _from_hashlib("sha512"),
    0x14: _from_hashlib("sha3_512"),
    0x15: _from_hashlib("sha3_384"),
    0x16: _from_hashlib("sha3_256"),
    0x17: _from_hashlib("sha3_224"),
    0x18: _shake("shake_128", 32),
    0x19: _shake("shake_256", 64),
    0x20: _from_hashlib("sha384"),
    **{0xB200 + size_bytes: _blake2b(size_bytes) for size_bytes in range(1, 65)},
    **{0xB240 + size_bytes: _blake2s(size_bytes) for size_bytes in range(1, 33)},
}
"""Hash functions by their code in the table of multiformats. BLAKE3, an optional dependency, is in `_hash_of`."""
BLAKE3: Final = 0x1E
"""Code of the hash function BLAKE3."""
_UNCHECKED_NAMES: Final = {
    0x11: "SHA-1",
    0x1A: "Keccak-224",
    0x1B: "Keccak-256",
    0x1C: "Keccak-384",
    0x1D: "Keccak-512",
    BLAKE3: "BLAKE3",
    0x56: "double SHA-256",
    0xD5: "MD5",
    0x1012: "SHA-256 truncated to 254 bits",
    0xB401: "Poseidon",
}


@cache
def _blake3() -> _Hash | None:
    """Return a function that computes BLAKE3, or None if the library (extra "blake3") is not installed."""
    try:
        from blake3 import blake3
    except ImportError:
        return None
    return lambda block: blake3(block).digest()


def _hash_of(hash_code: int) -> _Hash | None:
    return _blake3() if hash_code == BLAKE3 else _HASHES.get(hash_code)


def hash_name(hash_code: int) -> str:
    """Return the name and the code of a hash function, for messages; only the code if `_UNCHECKED_NAMES` lacks it.

    Only functions that cafcat cannot compute, or cannot compute without an extra, have a name.
    """
    return (
        f"{_UNCHECKED_NAMES[hash_code]} (0x{hash_code:x})" if hash_code in _UNCHECKED_NAMES else f"0x{hash_code:x}"
    )


class Cid(NamedTuple):
    """A decoded CID.

    Attributes:
        version: 0 or 1.
        codec: code of the block's encoding, such as RAW or DAG_PB.
        hash_code: code of the hash function in the table of multiformats.
        digest: the digest of the block; for an identity CID the block itself.
    """

    version: int
    codec: int
    hash_code: int
    digest: bytes


def cid_end(data: bytes, offset: int) -> int:
    """Return the offset in `data` at which the CID ends that begins at `offset`.

    Raises:
        Truncated: the data ends within the CID.
        ValueError: no valid CID begins at `offset`.
    """
    if data.startswith(RAW_SHA256, offset) or data.startswith(b"\x01\x70\x12\x20", offset):
        end = offset + CID_BYTES
    elif data.startswith(_V0_HEAD, offset) or data[offset:] == _V0_HEAD[:1]:
        end = offset + _V0_BYTES
    else:
        end = _fields(data, offset)[3]
    if end > len(data):
        raise varint.Truncated("the data ends within a CID")
    return end


def parse(raw: bytes) -> Cid:
    """Decode a CID.

    Raises:
        ValueError: the bytes are not exactly one CID.
    """
    if raw.startswith(_V0_HEAD):
        cid, end = Cid(0, DAG_PB, SHA256, raw[2:]), _V0_BYTES
    else:
        codec, hash_code, digest_start, end = _fields(raw, 0)
        cid = Cid(1, codec, hash_code, raw[digest_start:])
    if end != len(raw):
        raise ValueError(f"a CID should have {end} bytes, but has {len(raw)}")
    return cid


def _fields(data: bytes, offset: int) -> tuple[int, int, int, int]:
    """Parse the CID of version 1 at `offset`. Return its codec, hash code, and the start and end of its digest.

    Raises:
        Truncated: the data ends before the digest.
        ValueError: the CID has another version, a malformed number, or more than 2 KiB.
    """
    version, position = varint.read(data, offset)
    if version != 1:
        raise ValueError(f"a CID has the unknown version {version}")
    codec, position = varint.read(data, position)
    hash_code, position = varint.read(data, position)
    digest_bytes, position = varint.read(data, position)
    if position + digest_bytes - offset > MAX_CID_BYTES:
        raise ValueError(f"a CID is larger than {MAX_CID_BYTES:,} bytes")
    return codec, hash_code, position, position + digest_bytes


def block_matches(raw: bytes, block: bytes) -> bool | None:
    """Return True if the block has the hash in the CID, and False if it has another hash.

    Return None if cafcat cannot compute the hash function. The digest in the CID may be truncated to 16 bytes or
    more.

    Args:
        raw: the CID.
        block: the block.

    Raises:
        ValueError: `raw` is not a CID (not raised if it begins with RAW_SHA256).
    """
    if raw.startswith(RAW_SHA256):
        return hashlib.sha256(block).digest() == raw[4:]
    _, _, hash_code, digest = parse(raw)
    compute = _hash_of(hash_code)
    if compute is None:
        return None
    found = compute(block)
    # A digest may be truncated, but not to so few bytes that other blocks easily match it.
    if hash_code == IDENTITY or len(digest) < 16:
        return found == digest
    return found[: len(digest)] == digest


def can_check_hash(raw: bytes) -> bool:
    """Return True if cafcat can compute the hash function of this CID, so that `block_matches` can check a block.

    Raises:
        ValueError: `raw` is not a CID (not raised if it begins like a CID with SHA-256).
    """
    return raw.startswith(_USUAL_HEADS) or _hash_of(parse(raw).hash_code) is not None


def cid_to_text(raw: bytes) -> str:
    """Return the usual text of a CID: base58 for version 0, "b" and base32 for version 1."""
    if raw.startswith(_V0_HEAD) and len(raw) == _V0_BYTES:
        return _to_base58(raw)
    return "b" + base64.b32encode(raw).decode().lower().rstrip("=")


def cid_from_text(text: str) -> bytes | None:
    """Return the binary CID with this text, or None if the text is not one that `cid_to_text` returns for a CID."""
    try:
        raw = _from_base58(text) if text.startswith("Qm") else _from_base32(text)
        parse(raw)
    except ValueError:
        return None
    return raw if cid_to_text(raw) == text else None


def _from_base32(text: str) -> bytes:
    if not text.startswith("b") or len(text) > 2 * MAX_CID_BYTES or text != text.lower():
        raise ValueError
    digits = text[1:].upper()
    return base64.b32decode(digits + "=" * (-len(digits) % 8))


def _to_base58(raw: bytes) -> str:
    number, digits = int.from_bytes(raw), ""
    while number:
        number, digit = divmod(number, 58)
        digits = _BASE58[digit] + digits
    return digits


def _from_base58(text: str) -> bytes:
    if len(text) > 64:
        raise ValueError
    number = 0
    for digit in text:
        number = number * 58 + _BASE58.index(digit)
    return number.to_bytes(_V0_BYTES) if number < 1 << 8 * _V0_BYTES else b""

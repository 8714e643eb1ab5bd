"""CIDs: which block is meant, by the hash of its bytes. They are kept as the bytes that stand in the archive."""

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
    "cid_end",
    "hash_is_known",
    "hash_name",
    "is_block_of",
    "parse",
    "text_of",
    "try_text",
]

MAX_CID_BYTES: Final = 2 << 10
RAW: Final = 0x55
DAG_PB: Final = 0x70
IDENTITY: Final = 0x00
SHA256: Final = 0x12
RAW_SHA256: Final = b"\x01\x55\x12\x20"
"""What the CID of a leaf begins with: version 1, raw bytes, SHA-256 of 32 bytes."""
CID_BYTES: Final = 36
"""Of a CID of version 1 with SHA-256 and a codec below 128: all that cafcat writes."""

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
"""Functions by their code in the table of multiformats. BLAKE3 comes with an extra."""
BLAKE3: Final = 0x1E
_UNCHECKED_NAMES: Final = {
    0x11: "SHA-1",
    0x1A: "Keccak-224",
    0x1B: "Keccak-256",
    0x1C: "Keccak-384",
    0x1D: "Keccak-512",
    BLAKE3: "BLAKE3",
    0x56: "double SHA-256",
    0xD5: "MD5",
    0x1012: "SHA-256 cut to 254 bits",
    0xB401: "Poseidon",
}


@cache
def _blake3() -> _Hash | None:
    """Return BLAKE3; None if the extra is not installed."""
    try:
        from blake3 import blake3
    except ImportError:
        return None
    return lambda block: blake3(block).digest()


def _hash_of(code: int) -> _Hash | None:
    return _blake3() if code == BLAKE3 else _HASHES.get(code)


def hash_name(code: int) -> str:
    """Return the name of a hash function that is not checked here, for messages."""
    return f"{_UNCHECKED_NAMES[code]} (0x{code:x})" if code in _UNCHECKED_NAMES else f"0x{code:x}"


class Cid(NamedTuple):
    """A CID taken apart; code and digest are those of its multihash."""

    version: int
    codec: int
    code: int
    digest: bytes


def cid_end(data: bytes, at: int) -> int:
    """Where the CID that begins there ends. Raises CutShort if the bytes end before, ValueError if it is none."""
    if data.startswith(RAW_SHA256, at) or data.startswith(b"\x01\x70\x12\x20", at):
        end = at + CID_BYTES
    elif data.startswith(_V0_HEAD, at) or data[at:] == _V0_HEAD[:1]:
        end = at + _V0_BYTES
    else:
        end = _fields(data, at)[3]
    if end > len(data):
        raise varint.CutShort("the bytes end within a CID")
    return end


def parse(raw: bytes) -> Cid:
    """Takes it apart. Raises ValueError unless it is a CID from its first byte to its last."""
    if raw.startswith(_V0_HEAD):
        cid, end = Cid(0, DAG_PB, SHA256, raw[2:]), _V0_BYTES
    else:
        codec, code, digest_at, end = _fields(raw, 0)
        cid = Cid(1, codec, code, raw[digest_at:])
    if end != len(raw):
        raise ValueError(f"a CID of {end} bytes is expected, there are {len(raw)}")
    return cid


def _fields(data: bytes, at: int) -> tuple[int, int, int, int]:
    """Codec, hash function, and where the digest begins and ends, of a CID of version 1."""
    version, place = varint.read(data, at)
    if version != 1:
        raise ValueError(f"a CID of version {version}: there are 0 and 1")
    codec, place = varint.read(data, place)
    code, place = varint.read(data, place)
    digest_bytes, place = varint.read(data, place)
    if place + digest_bytes - at > MAX_CID_BYTES:
        raise ValueError(f"a CID of more than {MAX_CID_BYTES:,} bytes")
    return codec, code, place, place + digest_bytes


def is_block_of(raw: bytes, block: bytes) -> bool | None:
    """Return whether the CID is that of the block; None if its hash function is not checked here. Raises ValueError
    if it is no CID."""
    if raw.startswith(RAW_SHA256):
        return hashlib.sha256(block).digest() == raw[4:]
    _, _, code, digest = parse(raw)
    compute = _hash_of(code)
    if compute is None:
        return None
    found = compute(block)
    # A digest may be cut to its first bytes, but not to so few that anything has it.
    if code == IDENTITY or len(digest) < 16:
        return found == digest
    return found[: len(digest)] == digest


def hash_is_known(raw: bytes) -> bool:
    """Return whether is_block_of checks this hash function. Raises ValueError if it is no CID."""
    return raw.startswith(_USUAL_HEADS) or _hash_of(parse(raw).code) is not None


def text_of(raw: bytes) -> str:
    """As people write it: base58 for version 0, base32 for version 1."""
    if raw.startswith(_V0_HEAD) and len(raw) == _V0_BYTES:
        return _to_base58(raw)
    return "b" + base64.b32encode(raw).decode().lower().rstrip("=")


def try_text(text: str) -> bytes | None:
    """The bytes of a CID as text_of writes it; None if it is not one."""
    try:
        raw = _from_base58(text) if text.startswith("Qm") else _from_base32(text)
        parse(raw)
    except ValueError:
        return None
    return raw if text_of(raw) == text else None


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

"""CIDs: which block is meant, by the hash of its bytes. They are kept as the bytes that stand in the archive."""

import base64
import hashlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cafcat.formats.car import varint

__all__ = [
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
_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

_Hash = Callable[[bytes], bytes]


def _sha2(name: str) -> _Hash:
    new: Any = getattr(hashlib, name)
    return lambda block: new(block).digest()


def _blake2b(size_bytes: int) -> _Hash:
    return lambda block: hashlib.blake2b(block, digest_size=size_bytes).digest()


def _identity(block: bytes) -> bytes:
    return block


_HASHES: Final[dict[int, _Hash]] = {
    IDENTITY: _identity,
    SHA256: _sha2("sha256"),
    0x13: _sha2("sha512"),
    0x20: _sha2("sha384"),
    **{0xB200 + size_bytes: _blake2b(size_bytes) for size_bytes in range(1, 65)},
}
"""Functions by their code in the table of multiformats."""


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
    """Whether the block is the one that this CID means; None if nobody can tell here, because the hash function is
    not one of those above. Raises ValueError if it is no CID."""
    if raw.startswith(RAW_SHA256):
        return hashlib.sha256(block).digest() == raw[4:]
    _, _, code, digest = parse(raw)
    compute = _HASHES.get(code)
    if compute is None:
        return None
    found = compute(block)
    # A digest may be cut to its first bytes, but not to so few that anything has it.
    if code == IDENTITY or len(digest) < 16:
        return found == digest
    return found[: len(digest)] == digest


def hash_is_known(raw: bytes) -> bool:
    """Whether is_block_of can tell. Raises ValueError if it is no CID."""
    return parse(raw).code in _HASHES


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

"""Where a name stands in a directory that is spread over shards: by MurmurHash3 (x64, 128 bits, the first 64)."""

from typing import Final

__all__ = ["HASH_BYTES", "name_hash"]

HASH_BYTES: Final = 8
"""One byte for each level of shards with 256 places."""

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_C1: Final = 0x87C3_7B91_1142_53D5
_C2: Final = 0x4CF5_AD43_2745_937F


def name_hash(name: bytes) -> bytes:
    """Eight bytes: the place at each level of shards."""
    first = second = 0
    whole = len(name) & ~15
    for at in range(0, whole, 16):
        first ^= _mixed(int.from_bytes(name[at : at + 8], "little"), _C1, 31, _C2)
        first = ((_turned(first, 27) + second & _MASK) * 5 + 0x52DC_E729) & _MASK
        second ^= _mixed(int.from_bytes(name[at + 8 : at + 16], "little"), _C2, 33, _C1)
        second = ((_turned(second, 31) + first & _MASK) * 5 + 0x3849_5AB5) & _MASK
    if rest := name[whole:]:
        second ^= _mixed(int.from_bytes(rest[8:], "little"), _C2, 33, _C1)
        first ^= _mixed(int.from_bytes(rest[:8], "little"), _C1, 31, _C2)
    first ^= len(name)
    second ^= len(name)
    first = first + second & _MASK
    second = second + first & _MASK
    return (_finished(first) + _finished(second) & _MASK).to_bytes(HASH_BYTES)


def _mixed(value: int, factor: int, turn: int, then: int) -> int:
    return _turned(value * factor & _MASK, turn) * then & _MASK


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51_AFD7_ED55_8CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CE_B9FE_1A85_EC53 & _MASK
    return value ^ value >> 33

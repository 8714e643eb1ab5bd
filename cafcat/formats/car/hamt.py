"""Computes the hash of names in sharded UnixFS directories: the first 64 bits of MurmurHash3 (x64, 128 bits)."""

from typing import Final

__all__ = ["HASH_BYTES", "name_hash"]

HASH_BYTES: Final = 8
"""Size of the hash in bytes. Each byte selects one of the 256 slots of a shard, one level per byte."""

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_C1: Final = 0x87C3_7B91_1142_53D5
_C2: Final = 0x4CF5_AD43_2745_937F


def name_hash(name: bytes) -> bytes:
    """Return the hash of a name in a sharded directory: eight bytes, each the slot at one level of shards."""
    first = second = 0
    whole = len(name) & ~15
    for offset in range(0, whole, 16):
        first ^= _mix(int.from_bytes(name[offset : offset + 8], "little"), _C1, 31, _C2)
        first = ((_rotate_left(first, 27) + second & _MASK) * 5 + 0x52DC_E729) & _MASK
        second ^= _mix(int.from_bytes(name[offset + 8 : offset + 16], "little"), _C2, 33, _C1)
        second = ((_rotate_left(second, 31) + first & _MASK) * 5 + 0x3849_5AB5) & _MASK
    if rest := name[whole:]:
        second ^= _mix(int.from_bytes(rest[8:], "little"), _C2, 33, _C1)
        first ^= _mix(int.from_bytes(rest[:8], "little"), _C1, 31, _C2)
    first ^= len(name)
    second ^= len(name)
    first = first + second & _MASK
    second = second + first & _MASK
    return (_finalize(first) + _finalize(second) & _MASK).to_bytes(HASH_BYTES)


def _mix(value: int, factor: int, rotation: int, second_factor: int) -> int:
    return _rotate_left(value * factor & _MASK, rotation) * second_factor & _MASK


def _rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _finalize(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51_AFD7_ED55_8CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CE_B9FE_1A85_EC53 & _MASK
    return value ^ value >> 33

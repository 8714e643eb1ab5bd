"""Unsigned varints of multiformats: seven bits a byte, the lowest first, the shortest form only, below 2^63."""

from typing import Final

__all__ = ["MAX_VARINT_BYTES", "CutShort", "encode", "read", "size"]

MAX_VARINT_BYTES: Final = 9


class CutShort(ValueError):
    """The bytes end within a value that may go on."""


def encode(value: int) -> bytes:
    """The value, from 0 on, as a varint."""
    if value < 0x80:
        return bytes((value,))
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def size(value: int) -> int:
    """How many bytes it takes."""
    if value < 0x80:
        return 1
    return (value.bit_length() + 6) // 7


def read(data: bytes, at: int) -> tuple[int, int]:
    """The value that begins there, and where it ends. Raises CutShort; ValueError if it has more than nine bytes,
    or more than it need have."""
    try:
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        value, shift = byte & 0x7F, 7
        for place in range(at + 1, at + MAX_VARINT_BYTES):
            byte = data[place]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if not byte:
                    raise ValueError("a varint is longer than it need be")
                return value, place + 1
            shift += 7
    except IndexError:
        raise CutShort("the bytes end within a varint") from None
    raise ValueError(f"a varint is longer than {MAX_VARINT_BYTES} bytes")

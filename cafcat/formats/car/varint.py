"""Encodes and decodes the unsigned varints of multiformats.

Each byte has seven bits, the lowest first. Only the shortest form is valid. Values are below 2^63.
"""

from typing import Final

__all__ = ["MAX_VARINT_BYTES", "Truncated", "encode", "read", "size"]

MAX_VARINT_BYTES: Final = 9
"""Largest size of a varint in bytes."""


class Truncated(ValueError):
    """The data ends within a value that is being decoded. More data may complete the value."""


def encode(value: int) -> bytes:
    """Return the varint of a non-negative number. Numbers of 2^63 or more are encoded, but `read` refuses them."""
    if value < 0x80:
        return bytes((value,))
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def size(value: int) -> int:
    """Return the size in bytes of the varint of a non-negative number."""
    if value < 0x80:
        return 1
    return (value.bit_length() + 6) // 7


def read(data: bytes, offset: int) -> tuple[int, int]:
    """Decode the varint at `offset`. Return its value, and the offset after it.

    Raises:
        Truncated: the data ends within the varint.
        ValueError: the varint has more than nine bytes, or is not in the shortest form.
    """
    try:
        byte = data[offset]
        if byte < 0x80:
            return byte, offset + 1
        value, shift = byte & 0x7F, 7
        for position in range(offset + 1, offset + MAX_VARINT_BYTES):
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if not byte:
                    raise ValueError("a varint is not in its shortest form")
                return value, position + 1
            shift += 7
    except IndexError:
        raise Truncated("the bytes end within a varint") from None
    raise ValueError(f"a varint is longer than {MAX_VARINT_BYTES} bytes")

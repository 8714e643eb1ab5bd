"""Checksums of files (CRC-32C) and of whole chunks (CRC-64/NVME).

CRC-32C (Castagnoli, RFC 3720) is what `file_locations.crc32c` holds; CRC-64/NVME is what S3 keeps for a
whole object, so a chunk can be compared with a server's copy without reading it.
"""

import base64
from collections.abc import Callable

import google_crc32c

__all__ = ["crc32c", "crc32c_of", "crc64nvme", "from_base64", "to_base64"]


_extend: Callable[[int, bytes], int] = google_crc32c.extend

crc32c_of: Callable[[bytes], int] = google_crc32c.value
"""The same as `crc32c` of all the data at once, for who cannot spare 0.1 us."""


def crc32c(data: bytes, value: int = 0) -> int:
    """CRC-32C of `data`, continued from `value`: an unsigned 32-bit number."""
    return _extend(value, data)


def crc64nvme(data: bytes | memoryview, value: int = 0) -> int:
    """CRC-64/NVME of `data`, continued from `value`: an unsigned 64-bit number."""
    # Only writers need it, and the import costs some 60 ms that a reading command should not pay.
    from awscrt.checksums import crc64nvme as compute

    return int(compute(data, value))


def combined(first: int, second: int, second_bytes: int) -> int:
    """CRC-64/NVME of two runs of bytes, one after the other, from that of each and the size of the second."""
    from awscrt.checksums import combine_crc64nvme

    return int(combine_crc64nvme(first, second, second_bytes))


def to_base64(crc64: int) -> str:
    """A CRC-64/NVME as S3 and the catalog show it: its eight bytes, big-endian, in base64."""
    return base64.b64encode(crc64.to_bytes(8)).decode()


def from_base64(text: str) -> int:
    """The way back. Raises ValueError."""
    return int.from_bytes(base64.b64decode(text))

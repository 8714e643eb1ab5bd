"""The parts of multipart uploads: their size, their number in flight, and the file from which boto3 sends a part.

Limits: 10,000 parts, each but the last of 5 MiB to 5 GiB (Amazon S3 User Guide, "Amazon S3 multipart upload
limits").
"""

import hashlib
from mmap import mmap
from types import TracebackType
from typing import Final, NamedTuple, Self

from cafcat.errors import InvalidInput
from cafcat.model import MAX_CHUNK_BYTES

__all__ = ["MAX_PARTS", "PartBody", "PartPlan", "plan_parts"]

MAX_PARTS: Final = 10_000
"""Most parts of one upload."""

_MIB: Final = 1 << 20
_MIN_PART_BYTES: Final = 5 * _MIB
"""Smallest size of a part in bytes, except for the last one."""
_BEST_PART_BYTES: Final = 16 * _MIB
"""Preferred size of a part in bytes. Larger parts save few requests, and cost more to send again."""
_MOST_IN_FLIGHT: Final = 8
"""Most parts that are sent at the same time."""


class PartPlan(NamedTuple):
    """Size and number of the parts of one multipart upload.

    Attributes:
        part_bytes: Size of a part in bytes.
        in_flight: How many parts are sent at the same time, while the next one is filled.
    """

    part_bytes: int
    in_flight: int

    @property
    def memory_bytes(self) -> int:
        """Memory for the parts in flight and the one that is being filled, in bytes."""
        return self.part_bytes * (self.in_flight + 1)


def plan_parts(memory_bytes: int, largest_bytes: int = MAX_CHUNK_BYTES) -> PartPlan:
    """Choose the size and number of parts in flight, so that the largest object has at most 10,000 parts.

    The parts have 16 MiB if the memory allows eight of them in flight, and one that is being filled. With less
    memory, the parts become smaller, and then fewer are in flight. Very large objects need larger parts.

    Args:
        memory_bytes: Memory for the parts of one upload, in bytes.
        largest_bytes: Size of the largest object in bytes.

    Raises:
        InvalidInput: The memory is too small for two parts.
    """
    least = max(_MIN_PART_BYTES, _whole_mib(-(-largest_bytes // MAX_PARTS)))
    affordable = memory_bytes // (_MOST_IN_FLIGHT + 1) // _MIB * _MIB
    part_bytes = max(least, min(_BEST_PART_BYTES, affordable))
    in_flight = min(_MOST_IN_FLIGHT, memory_bytes // part_bytes - 1)
    if in_flight < 1:
        needed = 2 * part_bytes
        hint = f"set upload_memory to {needed} or more"
        raise InvalidInput(f"{memory_bytes} bytes of memory are too few for an upload", hint=hint)
    return PartPlan(part_bytes, in_flight)


def _whole_mib(size_bytes: int) -> int:
    return -(-size_bytes // _MIB) * _MIB


class PartBody:
    """The bytes of a part, as a file for reading: the beginning of a buffer. boto3 copies other bodies."""

    def __init__(self, buffer: mmap, size_bytes: int) -> None:
        self._whole = memoryview(buffer)
        self._view = self._whole[:size_bytes]
        self._position = 0

    def __len__(self) -> int:
        return len(self._view)

    def read(self, size_bytes: int | None = -1) -> bytes:
        """Return at most `size_bytes` bytes from the position; all up to the end if it is negative or None."""
        left = len(self._view) - self._position
        count = left if size_bytes is None or size_bytes < 0 else min(size_bytes, left)
        start, self._position = self._position, self._position + count
        return bytes(self._view[start : self._position])

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move the position as `io.IOBase.seek` does, and return it."""
        self._position = (0, self._position, len(self._view))[whence] + offset
        return self._position

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def md5(self) -> bytes:
        """Return the MD5 of all bytes of the part, wherever the position is."""
        return hashlib.md5(self._view, usedforsecurity=False).digest()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._view.release()
        self._whole.release()

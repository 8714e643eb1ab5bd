"""The parts of multipart uploads: how large, how many, and how one is read while it is sent.

Limits: Amazon S3 User Guide, "Amazon S3 multipart upload limits": 10,000 parts, 5 MiB to 5 GiB each but the last.
"""

import hashlib
from mmap import mmap
from types import TracebackType
from typing import Final, NamedTuple, Self

from cafcat.errors import InvalidInput
from cafcat.model import MAX_CHUNK_BYTES

__all__ = ["MAX_PARTS", "PartBody", "PartPlan", "plan_parts"]

MAX_PARTS: Final = 10_000

_MIB: Final = 1 << 20
_MIN_PART_BYTES: Final = 5 * _MIB
_BEST_PART_BYTES: Final = 16 * _MIB
"""Larger ones save few requests, and cost more to send again."""
_MOST_IN_FLIGHT: Final = 8


class PartPlan(NamedTuple):
    """Parts of so many bytes, so many of them on their way at once while the next one is filled."""

    part_bytes: int
    in_flight: int

    @property
    def memory_bytes(self) -> int:
        return self.part_bytes * (self.in_flight + 1)


def plan_parts(memory_bytes: int, largest_bytes: int = MAX_CHUNK_BYTES) -> PartPlan:
    """Parts with which an object of `largest_bytes` has at most 10,000, within that memory: 16 MiB if it allows
    eight of them in flight, else smaller ones, else fewer. Raises InvalidInput if the memory is too small."""
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
    """The beginning of a buffer as a file that is read: boto3 copies whatever is no file."""

    def __init__(self, buffer: mmap, size_bytes: int) -> None:
        self._whole = memoryview(buffer)
        self._view = self._whole[:size_bytes]
        self._position = 0

    def __len__(self) -> int:
        return len(self._view)

    def read(self, size_bytes: int | None = -1) -> bytes:
        """At most so many bytes; all that are left if negative or None."""
        left = len(self._view) - self._position
        count = left if size_bytes is None or size_bytes < 0 else min(size_bytes, left)
        start, self._position = self._position, self._position + count
        return bytes(self._view[start : self._position])

    def seek(self, offset: int, whence: int = 0) -> int:
        """As of files."""
        self._position = (0, self._position, len(self._view))[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def md5(self) -> bytes:
        """Of all bytes."""
        return hashlib.md5(self._view, usedforsecurity=False).digest()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._view.release()
        self._whole.release()

"""The arithmetic of multipart uploads.

Limits: Amazon S3 User Guide, "Amazon S3 multipart upload limits": 10,000 parts, 5 MiB to 5 GiB each but the last.
"""

from typing import Final, NamedTuple

from cafcat.errors import InvalidInput

__all__ = ["LARGEST_OBJECT_BYTES", "MAX_PARTS", "PartPlan", "plan_parts"]

MAX_PARTS: Final = 10_000
LARGEST_OBJECT_BYTES: Final = 32_000_000_000
"""No chunk is larger (cafcat.ingest.coordinator)."""

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


def plan_parts(memory_bytes: int, largest_bytes: int = LARGEST_OBJECT_BYTES) -> PartPlan:
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

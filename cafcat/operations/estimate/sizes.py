"""Numbers of objects by their size, as they are counted or estimated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["Sizes"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many objects there are, by size.

    Attributes:
        by_power: For each power of two, the number and the bytes of the objects below it that are not below the
            next smaller power. The key is the exponent; 0 for empty objects. Estimated numbers are not whole.
    """

    by_power: Mapping[int, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, sizes: Iterable[int]) -> "Sizes":
        """Return the counts of objects with these sizes in bytes."""
        found: dict[int, tuple[float, float]] = {}
        for size in sizes:
            count, total = found.get(size.bit_length(), (0.0, 0.0))
            found[size.bit_length()] = count + 1, total + size
        return cls(found)

    @classmethod
    def equal(cls, objects: float, size_bytes: int) -> "Sizes":
        """Return the counts of objects that all have the same size."""
        return cls({size_bytes.bit_length(): (objects, objects * size_bytes)})

    @property
    def objects(self) -> float:
        """Number of objects."""
        return sum(count for count, _ in self.by_power.values())

    @property
    def size_bytes(self) -> float:
        """Sum of the sizes in bytes."""
        return sum(total for _, total in self.by_power.values())

    @property
    def mean_bytes(self) -> float:
        """Mean size of an object in bytes; 0 if there is none."""
        return self.size_bytes / self.objects if self.objects else 0.0

    def billed_bytes(self, least_bytes: int) -> float:
        """Return the sum of the sizes, if an object of fewer than `least_bytes` counts as one of this size."""
        return sum(max(total, count * least_bytes) for count, total in self.by_power.values())

    def scaled(self, factor: float) -> "Sizes":
        """Return the counts of `factor` times as many objects."""
        return Sizes({power: (count * factor, total * factor) for power, (count, total) in self.by_power.items()})

    def __add__(self, other: "Sizes") -> "Sizes":
        found = dict(self.by_power)
        for power, (count, total) in other.by_power.items():
            own = found.get(power, (0.0, 0.0))
            found[power] = own[0] + count, own[1] + total
        return Sizes(found)

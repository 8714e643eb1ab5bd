"""The report of `compare`."""

from dataclasses import dataclass

__all__ = ["CompareReport"]


@dataclass(frozen=True, slots=True)
class CompareReport:
    """rows: how many both have alike, by table; differences: how many not."""

    rows: dict[str, int]
    differences: dict[str, int]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not any(self.differences.values())

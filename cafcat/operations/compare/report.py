"""The report of `compare`: the totals that the operation returns."""

from dataclasses import dataclass

__all__ = ["CompareReport"]


@dataclass(frozen=True, slots=True)
class CompareReport:
    """Totals of one `cafcat compare`.

    Attributes:
        rows: Number of rows that are equal in both catalogs, by table. A chunk's checksum that only one catalog
            knows is no difference.
        differences: Number of rows that differ or that only one catalog has, by table.
    """

    rows: dict[str, int]
    differences: dict[str, int]

    @property
    def equal(self) -> bool:
        """True if no row differs, and no row is in only one of the catalogs."""
        return not any(self.differences.values())

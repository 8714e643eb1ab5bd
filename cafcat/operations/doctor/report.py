"""The report of the operation `doctor`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cafcat.catalog.health.totals import CatalogTotals

__all__ = ["Diagnosis", "DoctorReport", "Level"]


class Level(StrEnum):
    """How serious a result of a check is."""

    OK = "ok"
    """Nothing has to be done."""
    WARNING = "warning"
    """Work goes on, but something is slow, unsafe or forgotten."""
    ERROR = "error"
    """Files cannot be packed or read, or may be lost."""


class Diagnosis(NamedTuple):
    """One result of a check.

    Attributes:
        check: Name of the check.
        level: How serious the result is.
        found: The finding, in one line.
        remedy: The next step for the user, in one line; None if nothing has to be done.
    """

    check: str
    level: Level
    found: str
    remedy: str | None


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Results of all checks.

    Attributes:
        diagnoses: The results, in the order of the checks.
        skipped: Names of the checks that need a database or its schema, and had none.
        totals: Numbers of the catalog; None if they could not be read.
    """

    diagnoses: tuple[Diagnosis, ...]
    skipped: tuple[str, ...]
    totals: "CatalogTotals | None"

    def of(self, level: Level) -> list[Diagnosis]:
        """Return the results of one level."""
        return [diagnosis for diagnosis in self.diagnoses if diagnosis.level is level]

    @property
    def is_healthy(self) -> bool:
        """True if there is no error. There may be warnings."""
        return not self.of(Level.ERROR)

"""Missing and damaged objects that a rebuild finds."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = ["Damage", "DamageKind", "Damages"]

_LISTED_DAMAGES: Final = 1000


class DamageKind(StrEnum):
    """Kinds of damage in a store."""

    MISSING = "missing"
    """The journal says that a chunk was committed, and no store has it."""
    CHUNK = "chunk"
    """The index of a chunk cannot be read, or is not what the journal says."""
    JOURNAL = "journal"
    """A journal record cannot be read: what it said is not known."""
    ORDER = "order"
    """Two journal records have the same number: two catalogs wrote to these stores."""


class Damage(NamedTuple):
    """name: the object, or the uuid of a chunk that is missing. files: how many it had, if that is known. lost:
    whether nothing else says the same."""

    kind: DamageKind
    name: str
    message: str
    files: int | None
    lost: bool


@dataclass(slots=True)
class Damages:
    """The first thousand of `count` damages; lost_count of all cost something."""

    listed: list[Damage] = field(default_factory=list)
    count: int = 0
    lost_count: int = 0

    def add(self, damage: Damage) -> None:
        """Count one more, and list it if it is one of the first."""
        self.count += 1
        self.lost_count += damage.lost
        if len(self.listed) < _LISTED_DAMAGES:
            self.listed.append(damage)

    def extend(self, others: "Damages") -> None:
        """Add other damages to these."""
        self.listed += others.listed[: _LISTED_DAMAGES - len(self.listed)]
        self.count += others.count
        self.lost_count += others.lost_count

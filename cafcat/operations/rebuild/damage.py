"""Damage that a rebuild finds in stores: missing and damaged objects, and journal records out of order."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = ["Damage", "DamageKind", "Damages"]

_LISTED_DAMAGES: Final = 1000


class DamageKind(StrEnum):
    """Kinds of damage that a rebuild finds in stores."""

    MISSING = "missing"
    """The journal has a committed chunk, and no store has its object."""
    CHUNK = "chunk"
    """An object of a chunk has an unreadable index, or differs from the journal record or from the first object."""
    JOURNAL = "journal"
    """An object of a journal record cannot be read. Unless another store has the record, its files are unknown."""
    ORDER = "order"
    """Two journal records have the same sequence number: two catalogs wrote to these stores."""
    STORE = "store"
    """The journal lists a store with chunks of the catalog that was not named. Its chunks are unknown."""
    FILE = "file"
    """The last change of a path restored a file in a chunk that neither a journal record nor an object names."""


class Damage(NamedTuple):
    """Damage of one object that a rebuild found.

    Attributes:
        kind: Kind of the damage.
        name: Path or URL of the object; for a missing chunk its uuid; for ORDER the key of the journal record; for
            STORE the URL of the store; for FILE the path in the catalog.
        message: Description of the damage.
        files: Number of files of the chunk; None if it is unknown, or for a journal record.
        lost: True if contents are lost by this damage, because no other object has them.
    """

    kind: DamageKind
    name: str
    message: str
    files: int | None
    lost: bool


@dataclass(slots=True)
class Damages:
    """The damage that a rebuild found.

    Attributes:
        listed: The first thousand damages.
        count: Number of all damages.
        lost_count: Number of damages by which contents are lost.
    """

    listed: list[Damage] = field(default_factory=list)
    count: int = 0
    lost_count: int = 0

    def add(self, damage: Damage) -> None:
        """Count a damage, and list it if it is one of the first thousand."""
        self.count += 1
        self.lost_count += damage.lost
        if len(self.listed) < _LISTED_DAMAGES:
            self.listed.append(damage)

    def extend(self, others: "Damages") -> None:
        """Add all damage of another Damages object to this one."""
        self.listed += others.listed[: _LISTED_DAMAGES - len(self.listed)]
        self.count += others.count
        self.lost_count += others.lost_count

"""The arguments and flags of the operation `compare`."""

from dataclasses import dataclass
from typing import Annotated

from cafcat.support.arguments import parse_text
from cafcat.support.parameters import Argument

__all__ = ["CompareOptions"]


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Compare this catalog with another one: chunks, files, earlier locations of paths, and archives of logs.

    Only committed and retired chunks are compared. Stores, copies and entity tags of sources are not compared, nor
    facts that only one catalog can have: runs, events, and the times of commits. Each difference is an event.

    Attributes:
        other: libpq URL of the other catalog.
    """

    other: Annotated[str, Argument("DATABASE_URL", "libpq URL of the database with the other catalog.", parse_text)]

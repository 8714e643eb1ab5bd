"""What reading files by path asks of a catalog: a database of ours, or a snapshot of one."""

from collections.abc import Collection
from typing import Protocol
from uuid import UUID

from cafcat.model import Location

__all__ = ["FoundCopies", "FoundFiles", "LocationCatalog"]


class FoundFiles(Protocol):
    """Look-ups by path."""

    def locate(self, path: str) -> Location:
        """Raises NotFound; InvalidInput for what cannot be a path."""

    def locate_many(self, paths: Collection[str]) -> dict[str, Location]:
        """Those of up to LOOKED_UP_PATHS paths that are there."""

    def folders_among(self, names: Collection[str]) -> set[str]:
        """Which of the names are folders."""


class FoundCopies(Protocol):
    """Objects that have the bytes of a chunk."""

    def replicas_of(self, chunk: UUID) -> list[tuple[str, str]]:
        """Return store and key of the chunk itself, as they are now, and of each copy."""


class LocationCatalog(Protocol):
    """A catalog as reading sees it."""

    @property
    def files(self) -> FoundFiles: ...

    @property
    def copies(self) -> FoundCopies: ...

"""Saves in the catalog how far the listings of an ingest were processed, so that they can be continued."""

from collections.abc import Mapping
from typing import Protocol

from cafcat.model import SourceFile
from cafcat.sources.base import ResumableSource, Source

__all__ = ["Positions", "SavedPositions"]


class SavedPositions(Protocol):
    """The part of the catalog that has the positions of listings, or of shards."""

    def advance(self, listing_id: int, position: str, /) -> None:
        """Record that all files of a listing up to a position were processed."""

    def finish(self, listing_id: int, /) -> None:
        """Record that all files of a listing were processed."""


class Positions:
    """Tracks how far the listings of one ingest's sources were processed, and saves it in the catalog.

    A file is passed when it is in the open chunk, or need not be packed. When the open chunk is committed, the
    position of the last passed file is saved. At a file that could not be read, the position of its listing stops:
    an interrupted listing continues with this file. A listing that came to its end is finished, even if files
    failed.

    Attributes:
        source: The source whose files are being processed; None before the first one.
    """

    def __init__(self) -> None:
        self.source: Source | None = None
        self._listings: SavedPositions | None = None
        self._ids: Mapping[Source, int] = {}
        self._passed: dict[Source, SourceFile] = {}
        self._held: set[Source] = set()
        self._ended: list[Source] = []

    def begin(self, listings: SavedPositions, ids: Mapping[Source, int]) -> None:
        """Let `save` write positions to the catalog. Without this call, `save` does nothing.

        Args:
            listings: The listings, or shards, of the catalog.
            ids: Id of the listing of each source that has a resumable listing. The caller may add sources later.
        """
        self._listings, self._ids = listings, ids

    def passed(self, file: SourceFile) -> None:
        """Note that a file of the current source, and all files before it, were passed."""
        if self._ids and self.source is not None and self.source not in self._held:
            self._passed[self.source] = file

    def hold(self) -> None:
        """Do not move the position of the current source any further, because a file could not be read."""
        if self.source is not None:
            self._held.add(self.source)

    def ended(self, source: Source) -> None:
        """Note that the listing of a source came to its end: the next `save` finishes it."""
        if source in self._ids:
            self._ended.append(source)

    def save(self) -> None:
        """Save the position of each listing after its last passed file, and finish the listings that ended.

        Call this only when all passed files are committed.
        """
        if self._listings is None:
            return
        for source, file in self._passed.items():
            if source in self._ids and isinstance(source, ResumableSource):
                position = source.position_of(file)
                if position is not None:
                    self._listings.advance(self._ids[source], position)
        self._passed.clear()
        for source in self._ended:
            self._listings.finish(self._ids[source])
        self._ended.clear()

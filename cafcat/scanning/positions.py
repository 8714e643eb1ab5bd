"""Saves in the catalog how far the listings of an ingest were processed, so that they can be continued."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from cafcat.model import SourceFile
from cafcat.sources.base import ResumableSource, Source

__all__ = ["PassedFiles", "Positions", "SavedPositions"]


class SavedPositions(Protocol):
    """The part of the catalog that has the positions of listings, or of shards."""

    def advance(self, listing_id: int, position: str, /) -> None:
        """Record that all files of a listing up to a position were processed."""

    def finish(self, listing_id: int, /) -> None:
        """Record that all files of a listing were processed."""


class PassedFiles(NamedTuple):
    """How far listings were processed up to the end of a chunk.

    Attributes:
        last: The last passed file of each source whose position moved.
        ended: Sources whose listing came to its end.
    """

    last: Mapping[Source, SourceFile]
    ended: Sequence[Source]


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

    def pop_passed(self) -> PassedFiles:
        """Return the files that were passed since the last call, for `save` once all of them are committed."""
        passed = PassedFiles(self._passed, self._ended)
        self._passed, self._ended = {}, []
        return passed

    def save(self, passed: PassedFiles | None = None) -> None:
        """Save the position of each listing after its last passed file, and finish the listings that ended.

        Call this only when these files are committed, and those of earlier calls of `pop_passed`.

        Args:
            passed: Result of `pop_passed`; None for the files that were passed since the last call of `pop_passed`.
        """
        last, ended = self.pop_passed() if passed is None else passed
        if self._listings is None:
            return
        for source, file in last.items():
            if source in self._ids and isinstance(source, ResumableSource):
                position = source.position_of(file)
                if position is not None:
                    self._listings.advance(self._ids[source], position)
        for source in ended:
            self._listings.finish(self._ids[source])

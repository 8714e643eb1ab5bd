"""How far the listings of a run were dealt with: kept in the catalog, so that an interrupted one goes on."""

from collections.abc import Mapping

from cafcat.catalog.history.listings import Listings
from cafcat.model import SourceFile
from cafcat.sources.base import ResumableSource, Source

__all__ = ["Positions"]


class Positions:
    """A file is passed when it is in the open chunk, or needs nothing more; passed files are settled when the open
    chunk is committed. Only what is settled is written down, and nothing beyond a file that could not be read: an
    interrupted listing goes on before that. One that came to its end is over, whatever failed.
    """

    def __init__(self, listings: Listings | None = None, ids: Mapping[Source, int] | None = None) -> None:
        """Args: ids: the number of the listing of each source that has one."""
        self._listings = listings
        self._ids = dict(ids or {})
        self._passed: dict[Source, SourceFile] = {}
        self._held: set[Source] = set()
        self._ended: list[Source] = []

    def passed(self, source: Source, file: SourceFile) -> None:
        """This file, and all that the source gave before."""
        if self._ids and source not in self._held:
            self._passed[source] = file

    def hold(self, source: Source) -> None:
        """The file at hand could not be read now: its listing is not to go on after it."""
        self._held.add(source)

    def ended(self, source: Source) -> None:
        """All that the source has."""
        if source in self._ids:
            self._ended.append(source)

    def settle(self) -> None:
        """What was passed is committed."""
        if self._listings is None:
            return
        for source, file in self._passed.items():
            if source in self._ids and isinstance(source, ResumableSource):
                self._listings.advance(self._ids[source], source.position_of(file))
        self._passed.clear()
        for source in self._ended:
            self._listings.finish(self._ids[source])
        self._ended.clear()

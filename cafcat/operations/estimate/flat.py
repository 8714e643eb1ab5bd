"""Estimates how many files a large folder has, from pages of its listing at several places.

Between two pages, the names are supposed to be as dense as on these pages. The next page is listed in the middle of
the gap that seems to have the most names.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

from cafcat.model import SourceFile
from cafcat.operations.estimate.counted import Counted, counted
from cafcat.operations.estimate.key_space import KeySpace
from cafcat.sources.base import ListedPage

__all__ = ["AT_ONCE", "Flat"]

AT_ONCE: Final = 8
"""Most pages that are requested at the same time."""
_DENSITY_ERROR: Final = 0.03
"""Relative error of a density that is measured by 1,000 names that come at random."""
_SHOWN_NAMES: Final = 50
"""Names of each page from which the characters at each position are found."""


class Lister(Protocol):
    """Lists pages of folders."""

    def list_all(self, pool: ThreadPoolExecutor, wanted: Sequence[tuple[str, str | None]], /) -> list[ListedPage]:
        """Return the pages, which are requested at the same time."""


@dataclass(slots=True)
class _Span:
    """A page of the listing.

    Attributes:
        after: The name after which the page was listed. No name is between it and the first one of the page.
        page: The page, without names of later pages.
        joins: True if no name is between this page and the next one.
    """

    after: str
    page: ListedPage
    joins: bool = False

    @property
    def last(self) -> str:
        """The last name of the page; `after` if it is empty."""
        return self.page.names[-1] if self.page.names else self.after


@dataclass(frozen=True, slots=True)
class _Gap:
    """The unlisted names between two pages.

    Attributes:
        start: Number of the last name before the gap.
        end: Number of the first name that is certainly beyond the gap.
        names: Estimated number of names in the gap.
        deviation: Standard deviation of this number.
    """

    start: int
    end: int
    names: float
    deviation: float


class Flat:
    """A folder with more names than fit into one page."""

    def __init__(self, lister: Lister, folder: str, first: ListedPage) -> None:
        """Begin with the first page of the folder."""
        self._lister = lister
        self._folder = folder
        self._spans = [_Span("", first)]

    def list(self, pool: ThreadPoolExecutor, pages: int) -> None:
        """List pages after the last known name, and in the gaps that seem to have the most names.

        Args:
            pool: Runs the requests.
            pages: Most pages to list.
        """
        while pages > 0 and (places := self._places(min(pages, AT_ONCE))):
            found = self._lister.list_all(pool, [(self._folder, place) for place in places])
            for place, page in zip(places, found, strict=True):
                self._add(place, page)
            pages -= len(places)

    @property
    def folders(self) -> Sequence[str]:
        """The folders that were listed."""
        return [name for span in self._spans for name in span.page.folders]

    def estimate(self) -> tuple[Counted, float, float]:
        """Return an estimate of the files in the folder itself, and of the folders.

        Returns:
            The files in the folder itself, the number of folders directly below it, and the standard deviation of
            this number.
        """
        total = Counted()
        for span in self._spans:
            total += counted(span.page)
        listed = max(1, sum(len(span.page.names) for span in self._spans))
        gaps = self._gaps(self._space())
        missing = sum(gap.names for gap in gaps)
        deviation = sum(gap.deviation for gap in gaps) / listed  # the errors of gaps have the same causes
        objects = (deviation * total.sizes.objects) ** 2
        unlisted = Counted(total.sizes.scaled(missing / listed), objects, objects * total.sizes.mean_bytes**2)
        folders = len(self.folders)
        return total + unlisted, folders * (1 + missing / listed), folders * deviation

    def _places(self, count: int) -> Sequence[str]:
        """Return names after which to list: after the last known name, and in the middle of gaps."""
        space = self._space()
        places = []
        if not self._spans[-1].page.is_last:
            top = space.name(space.size - 1)
            places = [max(top, self._spans[-1].last)]
        gaps = sorted(self._gaps(space), key=lambda gap: -gap.names)
        inner = [
            space.name((gap.start + gap.end) // 2) for gap in gaps if gap.names >= 1 and gap.end - gap.start > 1
        ]
        known = {span.after for span in self._spans}
        return [*places, *(name for name in inner if name not in known)][:count]

    def _space(self) -> KeySpace:
        names: list[str] = []
        for span in self._spans:
            step = max(1, len(span.page.names) // _SHOWN_NAMES)
            names += [*span.page.names[::step], *span.page.names[-1:]]
        return KeySpace(self._folder, names)

    def _add(self, after: str, page: ListedPage) -> None:
        """Insert a page. Names that a neighbour has, too, are left out."""
        place = next((n for n, span in enumerate(self._spans) if span.after >= after), len(self._spans))
        before = self._spans[place - 1]
        if after <= before.last:
            page, after, before.joins = _part(page, before.last, None), before.last, True
        joins = False
        if place < len(self._spans):
            end = self._spans[place].after
            joins = page.is_last or bool(page.names and page.names[-1] >= end)
            page = _part(page, after, end)
        self._spans.insert(place, _Span(after, page, joins))

    def _gaps(self, space: KeySpace) -> Sequence[_Gap]:
        densities = [_density(space, span.page) for span in self._spans]
        ends = [space.number(span.after) for span in self._spans[1:]] + [space.size]
        gaps = []
        for n, (span, end) in enumerate(zip(self._spans, ends, strict=True)):
            start = space.number(span.last)
            beside = [density for density in densities[n : n + 2] if density is not None]
            if span.joins or span.page.is_last or end <= start or not beside:
                continue
            width, mean = end - start, sum(beside) / len(beside)
            spread = max(beside) - min(beside) if len(beside) > 1 else mean
            gaps.append(_Gap(start, end, width * mean, width * (spread / 2 + _DENSITY_ERROR * mean)))
        return gaps


def _density(space: KeySpace, page: ListedPage) -> float | None:
    """Return the names of a page for each number between its first and its last name; None without names."""
    if len(page.names) < 2:
        return None
    return (len(page.names) - 1) / max(1, space.number(page.names[-1]) - space.number(page.names[0]))


def _part(page: ListedPage, after: str, until: str | None) -> ListedPage:
    """Return the part of a page whose names come after one name, and not after another one."""

    def is_inside(name: str) -> bool:
        return after < name and (until is None or name <= until)

    files = [item for item in page.files if isinstance(item, SourceFile) and is_inside(item.locator)]
    folders = [name for name in page.folders if is_inside(name)]
    return ListedPage(files, folders, [name for name in page.names if is_inside(name)], page.is_last)

"""Estimates how many files of which sizes a source has, from a part of its listing.

A folder that fits into one page is counted. Of the folders below it, some are chosen at random and estimated. Of a
folder with more names, pages at several places are listed (`flat`).
"""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cafcat.model import SourceFile
from cafcat.operations.estimate.counted import Counted, counted
from cafcat.operations.estimate.flat import AT_ONCE, Flat
from cafcat.session import Session
from cafcat.sources.base import BrowsableSource, ListedPage

__all__ = ["Sample", "estimate_folder"]

_KEPT_FILES: Final = 2000
"""Most files that are kept, to read some of them."""
_LEAST_PAGES: Final = 4
"""Pages that each chosen folder may list."""


class Sample:
    """Lists parts of one source, counts the requests, and keeps some of the files."""

    def __init__(self, session: Session, source: BrowsableSource, seed: int = 0) -> None:
        self._session = session
        self._source = source
        self.random = random.Random(seed)  # noqa: S311 - a sample, not a secret
        self.pages = 0
        self.files: list[SourceFile] = []
        self._seen = 0

    def list_all(self, pool: ThreadPoolExecutor, wanted: Sequence[tuple[str, str | None]]) -> list[ListedPage]:
        """Return pages of folders, which are requested at the same time.

        Args:
            pool: Runs the requests.
            wanted: Folder of each page, and the name after which the page begins.

        Raises what `BrowsableSource.page` and `Session.checkpoint` raise.
        """
        self._session.checkpoint()
        found = list(pool.map(lambda place: self._source.page(*place), wanted))
        self.pages += len(found)
        for page in found:
            self._keep([item for item in page.files if isinstance(item, SourceFile)])
        return found

    def _keep(self, files: Sequence[SourceFile]) -> None:
        """Keep each of the files that were seen with the same probability."""
        for file in files:
            self._seen += 1
            if len(self.files) < _KEPT_FILES:
                self.files.append(file)
            elif (place := self.random.randrange(self._seen)) < _KEPT_FILES:
                self.files[place] = file


def estimate_folder(sample: Sample, folder: str, pages: int) -> Counted:
    """Return an estimate of the files below a folder.

    Args:
        sample: Lists the source.
        folder: The folder.
        pages: About how many pages may be listed.

    Raises:
        AccessDenied, NotFound, StoreFailed, SourceFailed: A folder cannot be listed.
    """
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="cafcat-list") as pool:
        [page] = sample.list_all(pool, [(folder, None)])
        return _below(sample, pool, folder, page, pages - 1)


def _below(sample: Sample, pool: ThreadPoolExecutor, folder: str, first: ListedPage, pages: int) -> Counted:
    if first.is_last:
        return counted(first) + _folders(sample, pool, first.folders, len(first.folders), pages)
    flat = Flat(sample, folder, first)
    share = max(2, pages // 2 if first.folders else pages)
    flat.list(pool, share)
    own, count, deviation = flat.estimate()
    below = _folders(sample, pool, flat.folders, count, max(0, pages - share))
    unsure = deviation / max(1.0, count)
    return own + Counted(
        below.sizes,
        below.objects_variance + (unsure * below.sizes.objects) ** 2,
        below.bytes_variance + (unsure * below.sizes.size_bytes) ** 2,
    )


def _folders(sample: Sample, pool: ThreadPoolExecutor, folders: Sequence[str], count: float, pages: int) -> Counted:
    """Return an estimate of the files below folders, from some of the folders that are chosen at random.

    Args:
        sample: Lists the source.
        pool: Runs requests.
        folders: The known folders.
        count: Number of all folders; more than there are known ones if the rest was not listed.
        pages: About how many pages may be listed.
    """
    if not folders:
        return Counted()
    most = len(folders) if pages >= len(folders) else max(1, pages // _LEAST_PAGES)
    chosen = sample.random.sample(list(folders), min(most, len(folders)))
    first = sample.list_all(pool, [(name, None) for name in chosen])
    left = max(0, pages - len(chosen))
    open_count = sum(1 for page in first if page.folders or not page.is_last)
    found = [
        _below(sample, pool, name, page, left // max(1, open_count))
        for name, page in zip(chosen, first, strict=True)
    ]
    return _extrapolated(found, count)


def _extrapolated(found: Sequence[Counted], count: float) -> Counted:
    """Return the estimate for `count` folders of which some were chosen at random and estimated."""
    factor = count / len(found)
    total = Counted()
    for one in found:
        total += one
    if factor <= 1:
        return total
    objects = _variance([one.sizes.objects for one in found])
    size_bytes = _variance([one.sizes.size_bytes for one in found])
    between = count * count * (1 - 1 / factor) / len(found)
    return Counted(
        total.sizes.scaled(factor),
        between * objects + factor * total.objects_variance,
        between * size_bytes + factor * total.bytes_variance,
    )


def _variance(values: Sequence[float]) -> float:
    """Return the variance of the values. A single value is supposed to deviate from the mean by a half of it."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return mean * mean / 4
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)

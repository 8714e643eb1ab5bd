"""Counts the files of a source if its listing is short, and else estimates their number."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cafcat.errors import Unsupported
from cafcat.model import SourceFile
from cafcat.operations.estimate.counted import Counted
from cafcat.operations.estimate.sampling import Sample, estimate_folder
from cafcat.operations.estimate.sizes import Sizes
from cafcat.scanning.batches import SourceBroke, batches_of
from cafcat.session import Session
from cafcat.sources.base import BatchingSource, BrowsableSource, LocalSource, ReadOnceSource, Source
from cafcat.sources.tar.file import TarFileSource

__all__ = ["CountedSource", "count_source"]

_COUNT_SECONDS: Final = 5.0
"""How long a listing is read from its beginning, in seconds, before parts of it are read instead."""
_COUNT_PAGES: Final = 20
"""Most pages of a bucket that are read from the beginning: 20,000 objects."""
_KEPT_FILES: Final = 2000
_FOLDERS_A_PAGE: Final = 50
"""Folders on a local disk are listed so many times as fast as the pages of a bucket."""


@dataclass(frozen=True, slots=True)
class CountedSource:
    """The files of a source.

    Attributes:
        source: The source.
        counted: Their number and sizes.
        files: Some of the files, chosen at random if not all were listed.
        pages: Pages of the listing that were read.
        page_seconds: Mean time of a page, in seconds.
        name_bytes: Mean length of a name in the catalog, in bytes.
    """

    source: Source
    counted: Counted
    files: Sequence[SourceFile]
    pages: int
    page_seconds: float
    name_bytes: float


def count_source(session: Session, source: Source, pages: int) -> CountedSource:
    """Return the number of files of a source.

    Args:
        session: The session. Its `checkpoint` can end the count.
        source: The source.
        pages: About how many pages may be read if the listing is long.

    Raises:
        Unsupported: The source is a tar archive.
        CafcatError: The source fails.
    """
    if isinstance(source, ReadOnceSource | TarFileSource):
        raise Unsupported(f"{source.name} is an archive, which is not estimated", hint="name folders or buckets")
    sample = Sample(session, source) if isinstance(source, BrowsableSource) else None
    top = source.top_folder if isinstance(source, BrowsableSource) else None
    begin = time.monotonic()
    found, listed = _count(session, source, is_bounded=top is not None)
    if found is not None or sample is None or top is None:
        return _counted(source, found or Counted(), listed, begin)
    begin = time.monotonic()
    estimated = estimate_folder(sample, top, pages * (_FOLDERS_A_PAGE if isinstance(source, LocalSource) else 1))
    return _counted(source, estimated, _Listed(sample.files, sample.pages), begin)


@dataclass(slots=True)
class _Listed:
    files: list[SourceFile]
    pages: int = 0


def _count(session: Session, source: Source, *, is_bounded: bool) -> tuple[Counted | None, _Listed]:
    """Return the counted files; None if the listing is longer than a bounded count may read."""
    ends_at = time.monotonic() + _COUNT_SECONDS
    listed, sizes, seen = _Listed([]), Sizes(), 0
    try:
        for batch in batches_of(source):
            session.checkpoint()
            files = [item for item in batch if isinstance(item, SourceFile)]
            sizes += Sizes.of(file.size_bytes for file in files)
            seen += len(files)
            listed.files = _kept(listed.files, files, seen)
            listed.pages += 1
            is_long = isinstance(source, BatchingSource) and listed.pages >= _COUNT_PAGES
            if is_bounded and (is_long or time.monotonic() > ends_at):
                return None, listed
    except SourceBroke as broke:
        raise broke.reason from broke
    return Counted(sizes), listed


def _kept(kept: list[SourceFile], files: Sequence[SourceFile], seen: int) -> list[SourceFile]:
    """Return about as many of the new files as of the files before."""
    step = max(1, seen // _KEPT_FILES)
    return (kept + list(files[::step]))[-2 * _KEPT_FILES :]


def _counted(source: Source, counted: Counted, listed: _Listed, begin: float) -> CountedSource:
    seconds = (time.monotonic() - begin) / max(1, listed.pages)
    names = [len(file.path.encode("utf-8", "surrogateescape")) for file in listed.files]
    mean = sum(names) / len(names) if names else 0.0
    return CountedSource(source, counted, listed.files, listed.pages, seconds, mean)

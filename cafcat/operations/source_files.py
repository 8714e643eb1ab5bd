"""Opens those files of a source whose paths the catalog has."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from cafcat.catalog.catalog import Catalog
from cafcat.model import LOOKED_UP_PATHS, Location, SourceFile
from cafcat.scanning.batches import OpenResult, open_each
from cafcat.sources.base import Source

__all__ = ["open_existing_files"]


def open_existing_files(
    catalog: Catalog,
    source: Source,
    files: Sequence[SourceFile],
    note_others: Callable[[Sequence[SourceFile]], None] | None = None,
) -> Generator[tuple[Location, OpenResult], None, None]:
    """Yield each file whose path the catalog has: its location, and the opened file of the source or its error.

    The error is a SourceFailed. The caller has to use and close an opened file before it requests the next one.

    Args:
        catalog: The catalog.
        source: The source.
        files: Files of one batch of the source.
        note_others: Is called with the other files, if there are any, before the first file is yielded.

    Raises:
        SourceBroke: The source failed as a whole, so that no further file of it can be read.
    """
    located = _located(catalog, [file.path for file in files])
    existing = [file for file in files if file.path in located]
    if note_others is not None and len(existing) < len(files):
        note_others([file for file in files if file.path not in located])
    with closing(open_each(source, existing)) as results:
        for file, opened in zip(existing, results, strict=True):
            yield located[file.path], opened


def _located(catalog: Catalog, paths: Sequence[str]) -> dict[str, Location]:
    located: dict[str, Location] = {}
    for start in range(0, len(paths), LOOKED_UP_PATHS):
        located |= catalog.files.locate_many(paths[start : start + LOOKED_UP_PATHS])
    return located

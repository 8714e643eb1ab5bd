"""Files of a source that the catalog has, opened again."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.files.lookup import LOOKED_UP_PATHS
from cafcat.model import FileProblem, Location, SourceFile
from cafcat.scanning.batches import OpenResult, batches_of, open_each
from cafcat.sources.base import Source

__all__ = ["open_existing_files"]


def open_existing_files(
    catalog: Catalog,
    source: Source,
    is_requested: Callable[[str], bool],
    on_problem: Callable[[FileProblem], object],
) -> Generator[tuple[Location, OpenResult], None, None]:
    """Give each requested file of a source that the catalog has: its location, and the opened file or an error.

    Use the opened file before you request the next one.

    Args:
        catalog: The catalog.
        source: The source.
        is_requested: Called once with the path of each file, in their order. Returns True for a requested file.
        on_problem: Called with each item of the source that is not a file.

    Raises:
        SourceBroke: The source ended before its end.
    """
    for batch in batches_of(source):
        for item in batch:
            if isinstance(item, FileProblem):
                on_problem(item)
        requested = [item for item in batch if isinstance(item, SourceFile) and is_requested(item.path)]
        located = _located(catalog, [file.path for file in requested])
        existing = [file for file in requested if file.path in located]
        with closing(open_each(source, existing)) as results:
            for file, opened in zip(existing, results, strict=True):
                yield located[file.path], opened


def _located(catalog: Catalog, paths: Sequence[str]) -> dict[str, Location]:
    located: dict[str, Location] = {}
    for start in range(0, len(paths), LOOKED_UP_PATHS):
        located |= catalog.files.locate_many(paths[start : start + LOOKED_UP_PATHS])
    return located

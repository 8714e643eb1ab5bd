"""Files of a source, opened again, that the catalog has under their names."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.files.lookup import LOOKED_UP_PATHS
from cafcat.model import FileProblem, Location, SourceFile
from cafcat.scanning.batches import OpenResult, batches_of, open_each
from cafcat.sources.base import Source

__all__ = ["opened_again"]


def opened_again(
    catalog: Catalog,
    source: Source,
    is_wanted: Callable[[str], bool],
    on_problem: Callable[[FileProblem], object],
) -> Generator[tuple[Location, OpenResult], None, None]:
    """Of each file of a source that is wanted by its name in the catalog: where that is now, and the file, opened,
    or why it cannot be. To be taken before the next is asked for. `is_wanted` is asked of each file once, in their
    order; `on_problem` is told of what is in the source and is no file. Raises SourceBroke."""
    for batch in batches_of(source):
        for item in batch:
            if isinstance(item, FileProblem):
                on_problem(item)
        wanted = [item for item in batch if isinstance(item, SourceFile) and is_wanted(item.path)]
        located = _located(catalog, [file.path for file in wanted])
        known = [file for file in wanted if file.path in located]
        with closing(open_each(source, known)) as results:
            for file, opened in zip(known, results, strict=True):
                yield located[file.path], opened


def _located(catalog: Catalog, paths: Sequence[str]) -> dict[str, Location]:
    located: dict[str, Location] = {}
    for start in range(0, len(paths), LOOKED_UP_PATHS):
        located |= catalog.files.locate_many(paths[start : start + LOOKED_UP_PATHS])
    return located

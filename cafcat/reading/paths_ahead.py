"""Lists very many paths: while the caller uses some of them, threads get the next ones from the catalog."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import cycle
from typing import TYPE_CHECKING, Final

from cafcat.catalog.files.lookup import PATHS, paths_of_page
from cafcat.catalog.files.scope import folder_range, successor
from cafcat.support.in_order import in_order, made_ahead
from cafcat.support.paths import folder_of

if TYPE_CHECKING:
    from cafcat.catalog.catalog import Catalog
    from cafcat.catalog.files.lookup import Lookup
    from cafcat.catalog.files.path_page import PathPage
    from cafcat.catalog.files.scope import FindFilter, PathPart

__all__ = ["paths_ahead"]

_PART_OF_PAGE: Final = 0.5
"""How much of a list a part of the paths is to fill. The estimate of the server may be too low."""
_LISTS_AHEAD: Final = 4


def paths_ahead(
    catalog: "Catalog", prefix: str, where: "FindFilter | None" = None
) -> Generator[Sequence[str], None, None]:
    """Yield the paths of `Lookup.path_pages`, in lists.

    If the first list is full, two threads get the next ones by two connections, because the database server has a
    process for each connection. Close the generator if not all lists are needed.

    Args:
        catalog: The catalog.
        prefix: The name of a folder or file, as typed.
        where: Conditions that the files have to meet; None for none.

    Raises:
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    files: Lookup = catalog.reading.files
    pages = files.path_pages(prefix, where)
    if files is not catalog.files:  # a standby, whose pages may come from the primary
        yield from made_ahead(pages)
        return
    for page in pages:
        yield page
        if len(page) == PATHS:
            break
    else:
        return
    low, high = successor(page[-1]), folder_range(folder_of(prefix))[1]
    with catalog.second_connection() as other:
        parts = other.files.parts(low, high, int(_PART_OF_PAGE * paths_of_page(page)))
        yield from _in_turn(parts, (files, other.files), where, paths_of_page(page))


def _in_turn(
    parts: "Sequence[PathPart]", lookups: "Sequence[Lookup]", where: "FindFilter | None", most_paths: int
) -> Iterator["PathPage"]:
    """Yield the paths in parts of a range, in lists. The look-ups get the parts in turn."""

    def first_page(part: "PathPart", lookup: "Lookup") -> "PathPage":
        return lookup.path_page_between(*part, where, most_paths)

    tasks = zip(parts, cycle(lookups), strict=False)
    found = in_order(lambda task: (task, first_page(*task)), tasks, most_in_flight=2, most_begun=_LISTS_AHEAD)
    with closing(found):
        for ((_, end), lookup), page in found:
            if page:
                yield page
            if len(page) == most_paths:  # the part has more files than the server estimated
                rest = lookup.path_pages_between(successor(page[-1]), end, where, paths_of_page(page))
                yield from made_ahead(rest)

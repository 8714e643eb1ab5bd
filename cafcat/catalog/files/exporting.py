"""Files of several folders at one moment, in the order in which their bytes are read best."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from cafcat.catalog.connection import PgConnection
from cafcat.catalog.files.lookup import MICROSECONDS, PathScope, location_of, size_of, successor
from cafcat.catalog.history.runs import iso
from cafcat.catalog.repeatable_read import RepeatableRead, repeatable_read
from cafcat.model import Location

__all__ = ["Export", "export"]

_IN_RANGES: Final = (
    "unnest(%(lows)s::text[], %(highs)s::text[]) AS r(low, high) CROSS JOIN LATERAL "
    "(SELECT * FROM file_locations WHERE file_path >= r.low AND file_path < r.high OFFSET 0) AS l"
)
_ALL: Final = "file_locations AS l"
_TOTALS: Final = f"SELECT count(*), coalesce(sum({size_of('l.')}), 0)::bigint FROM {{files}}"  # noqa: S608
_FILES: Final = f"""
SELECT l.caf_file_id, l.file_path, l.start_byte, l.end_byte, l.crc32c, {MICROSECONDS}, l.content_bytes, l.decoding
FROM {{files}} ORDER BY l.caf_file_id, l.start_byte, l.end_byte, l.file_path
"""  # noqa: S608
_ABSENT: Final = """
SELECT r.number FROM unnest(%(paths)s::text[], %(lows)s::text[], %(highs)s::text[])
    WITH ORDINALITY AS r(path, low, high, number)
WHERE NOT EXISTS (SELECT FROM file_locations AS l WHERE l.file_path = r.path OFFSET 0)
    AND NOT EXISTS (SELECT FROM file_locations AS l WHERE l.file_path >= r.low AND l.file_path < r.high OFFSET 0)
ORDER BY r.number LIMIT 1
"""
_CHUNK: Final = "SELECT uuid, store, object_key, format FROM chunks WHERE id = %(id)s"


class Export:
    """Sees nothing that is committed later. taken_at: ISO 8601 in UTC."""

    def __init__(self, found: RepeatableRead) -> None:
        self._read = found
        found.read_by_index(everything=False)
        [(self.taken_at,)] = found.rows(f"SELECT {iso('now()')}")

    def first_absent(self, places: Sequence[PathScope]) -> int | None:
        """Which of the places has no file, if there is one; everything is always there."""
        named = [(number, place) for number, place in enumerate(places) if place.folder]
        ranges = [place.range() for _, place in named]
        parameters = {
            "paths": [place.file for _, place in named],
            "lows": [low for low, _ in ranges],
            "highs": [high for _, high in ranges],
        }
        rows = self._read.rows(_ABSENT, parameters)
        return named[int(rows[0][0]) - 1][0] if rows else None

    def totals(self, places: Sequence[PathScope]) -> tuple[int, int]:
        """Number and bytes of what `files` gives."""
        source, parameters = self._source(places)
        [(files, size_bytes)] = self._read.rows(_TOTALS.format(files=source), parameters)
        return int(files), int(size_bytes)

    def files(self, places: Sequence[PathScope]) -> Generator[Location, None, None]:
        """Each file of the places once, by chunk and offset. They stream: to be read to the end, or closed."""
        source, parameters = self._source(places)
        chunk: int | None = None
        of_chunk: tuple[Any, ...] = ()
        for page in self._read.pages(_FILES.format(files=source), parameters):
            for number, path, start, end, checksum, microseconds, content_bytes, decoding in page:
                if number != chunk:
                    chunk, of_chunk = number, self._read.rows(_CHUNK, {"id": number})[0]
                file = (path, start, end, checksum, microseconds)
                yield location_of((*file, *of_chunk, content_bytes, decoding))

    def _source(self, places: Sequence[PathScope]) -> tuple[str, dict[str, Any]]:
        """Return the FROM item that has the files of the places, and its parameters."""
        everything = any(not place.folder for place in places)
        self._read.read_by_index(everything=everything)
        if everything:
            return _ALL, {}
        ranges = _disjoint(places)
        return _IN_RANGES, {"lows": [low for low, _ in ranges], "highs": [high for _, high in ranges]}


def _disjoint(places: Sequence[PathScope]) -> list[tuple[str, str]]:
    """Half-open ranges of paths that have each file of the places once. Code points are in the order of their
    UTF-8."""
    ranges = [(place.file, successor(place.file)) for place in places if place.file is not None]
    ranges += [(place.folder, f"{place.folder[:-1]}0") for place in places]
    found: list[tuple[str, str]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


@contextmanager
def export(connect: Callable[[], PgConnection]) -> Iterator[Export]:
    """One transaction on a connection of its own. Raises CatalogUnavailable, CatalogOutdated."""
    with repeatable_read(connect) as found:
        yield Export(found)

"""One chunk: its map of live and dead ranges, its files, copies, checks and events."""

from collections.abc import Sequence
from typing import Final

from cafcat.catalog.console import chunks as queries
from cafcat.catalog.console.reading import PageQueries, Row
from cafcat.errors import NotFound
from cafcat.serve.console.page import Content, Page, Visit
from cafcat.serve.console.plots import merged

__all__ = ["PAGE"]

_SPANS: Final = 20_000
"""Most spans that the map is made of."""
_FILES: Final = 100
"""Files of one page."""
_SORTED: Final = 20_000
"""Files of a larger chunk are not sorted: that would read the rows of all of them."""


def chunk(visit: Visit) -> Content:
    """Return the values of a chunk's page."""
    found = queries.chunk(visit.queries, visit.chunk_uuid("uuid"))
    if found is None:
        raise NotFound("the catalog has no such chunk")
    chunk_id = found["id"]
    is_sorted = found["live_file_count"] <= _SORTED
    after = visit.text("after")
    files = queries.files(visit.queries, chunk_id, after=after if is_sorted else None, limit=_FILES + 1)
    dead, is_whole = _dead(visit.queries, found)
    return {
        "title": f"Chunk {str(found['uuid'])[:8]}",
        "chunk": found,
        "dead": dead,
        "map_is_whole": is_whole,
        "files": files[:_FILES],
        "more": files[_FILES - 1]["file_path"] if is_sorted and len(files) > _FILES else None,
        "files_are_sorted": is_sorted,
        "copies": queries.copies(visit.queries, chunk_id),
        "checks": queries.checks(visit.queries, chunk_id),
        "events": queries.events(visit.queries, chunk_id),
        "place": visit.repository.session.stores[found["store"]].locate(found["object_key"]),
    }


def _dead(page_queries: PageQueries, chunk: Row) -> tuple[Sequence[tuple[int, int]], bool]:
    """Return the dead spans of a chunk, and False if it has too many spans to find all of them.

    The spans come from the dead files, or, if these are too many, from the gaps between the live ones.
    """
    data_end = chunk["index_start_byte"]
    if data_end is None or chunk["live_bytes"] == chunk["data_bytes"]:
        return [], True
    if not chunk["live_file_count"]:
        return [(0, data_end)], True
    dead = queries.dead_spans(page_queries, chunk["id"], _SPANS + 1)
    if len(dead) <= _SPANS:
        return merged(dead), True
    live = queries.live_spans(page_queries, chunk["id"], _SPANS + 1)
    if len(live) <= _SPANS:
        return _gaps(merged(live), data_end), True
    return merged(dead), False


def _gaps(spans: Sequence[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """Return the spans of bytes before, between and behind spans."""
    starts, ends = [0, *(span[1] for span in spans)], [*(span[0] for span in spans), end]
    return [(start, stop) for start, stop in zip(starts, ends, strict=True) if start < stop]


PAGE = Page("chunk", "Chunk", chunk)

"""The list of chunks, of all states or of one."""

from cafcat.catalog.console.chunks import chunks_page
from cafcat.model import ChunkState
from cafcat.serve.console.page import Content, Page, Visit
from cafcat.serve.failures import BadRequest

__all__ = ["PAGE"]

_CHUNKS = 100
"""Chunks of one page."""


def chunks(visit: Visit) -> Content:
    """Return one page of chunks, the latest first."""
    state = visit.text("state")
    if state not in ("", *ChunkState):
        raise BadRequest(400, "there is no such state of chunks")
    found = chunks_page(visit.queries, state or None, visit.number("before", (1 << 63) - 1), _CHUNKS + 1)
    more = found[_CHUNKS - 1]["id"] if len(found) > _CHUNKS else None
    return {"chunks": found[:_CHUNKS], "state": state, "states": [*ChunkState], "more": more}


PAGE = Page("chunks", "Chunks", chunks, in_navigation=True)

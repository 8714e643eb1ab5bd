"""One ingest: its progress while it runs, its chunks and events."""

from cafcat.catalog.console import runs as queries
from cafcat.errors import NotFound
from cafcat.serve.console.page import Content, Page, Visit

__all__ = ["PAGE"]

_EVENTS = 100
"""Events of one page."""


def run(visit: Visit) -> Content:
    """Return the values of an ingest's page. While it runs, its chunks tell what is packed."""
    run_id = visit.number("id", 0)
    found = queries.run(visit.queries, run_id)
    if found is None:
        raise NotFound("the catalog has no such run")
    events = queries.events_of_run(visit.queries, run_id, visit.number("before", (1 << 63) - 1), _EVENTS + 1)
    shards = queries.shard_states(visit.queries, run_id)
    return {
        "title": f"Run {run_id}",
        "run": found,
        "written": queries.written(visit.queries, run_id),
        "shards": shards,
        "shard_shares": [(row["state"], row["shards"]) for row in shards],
        "chunks": queries.chunks_of_run(visit.queries, run_id),
        "events": events[:_EVENTS],
        "more": events[_EVENTS - 1]["id"] if len(events) > _EVENTS else None,
    }


PAGE = Page("run", "Run", run)

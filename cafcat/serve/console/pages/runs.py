"""The list of ingests."""

from cafcat.catalog.console.runs import runs_page
from cafcat.serve.console.page import Content, Page, Visit

__all__ = ["PAGE"]

_RUNS = 50
"""Runs of one page."""


def runs(visit: Visit) -> Content:
    """Return one page of ingests, the latest first."""
    found = runs_page(visit.queries, visit.number("before", (1 << 63) - 1), _RUNS + 1)
    more = found[_RUNS - 1]["id"] if len(found) > _RUNS else None
    return {"runs": found[:_RUNS], "more": more}


PAGE = Page("runs", "Runs", runs, in_navigation=True)

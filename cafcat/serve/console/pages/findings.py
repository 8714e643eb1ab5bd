"""What `verify` found to be wrong."""

from shlex import quote

from cafcat.catalog.console.findings import findings_page
from cafcat.serve.console.page import Content, Page, Visit

__all__ = ["PAGE"]

_FINDINGS = 100
"""Findings of one page."""


def findings(visit: Visit) -> Content:
    """Return one page of findings, the latest first."""
    only_live = visit.text("live") == "1"
    before = visit.number("before", (1 << 63) - 1)
    found = findings_page(visit.queries, before, _FINDINGS + 1, only_live=only_live)
    more = found[_FINDINGS - 1]["id"] if len(found) > _FINDINGS else None
    still_true = [row for row in found if row["is_open"]]
    stores = {quote(row["copy_store"]) for row in still_true if row["copy_store"]}
    content: Content = {"findings": found[:_FINDINGS], "only_live": only_live, "more": more}
    levels = {row["level"] == "source" for row in found}
    content |= {"of_sources": True in levels, "of_chunks": False in levels, "copy_stores": sorted(stores)}
    return content | {"to_repair": any(row["uuid"] and not row["copy_store"] for row in still_true)}


PAGE = Page("findings", "Findings", findings, in_navigation=True)

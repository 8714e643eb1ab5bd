"""The overview: sizes, states, growth, ingest rate, checks and dead space, in plots and tables."""

from cafcat.catalog.console import overview as queries
from cafcat.catalog.console.findings import findings_page
from cafcat.serve.console.page import Content, Page, Visit

__all__ = ["PAGE"]

_DAYS = 30
_RUNS = 30
_AGES = (
    ("week", "in the last 7 days"),
    ("month", "7 to 30 days ago"),
    ("quarter", "30 to 90 days ago"),
    ("older", "more than 90 days ago"),
    ("never", "never"),
)
_STATES = ("committed", "writing", "retired", "abandoned", "deleted")


def overview(visit: Visit) -> Content:
    """Return the values of the overview."""
    by_state = {row["state"]: row for row in queries.chunk_states(visit.queries)}
    ages = {row["age"]: row for row in queries.verification_ages(visit.queries)}
    return {
        "states": [by_state[state] for state in _STATES if state in by_state],
        "committed": by_state.get("committed"),
        "growth": queries.growth(visit.queries, _DAYS),
        "rates": list(reversed(queries.rates(visit.queries, _RUNS))),
        "running": queries.running(visit.queries),
        "age_shares": [(age, ages[age]["bytes"]) for age, _ in _AGES if age in ages],
        "ages": [(age, label, ages[age]) for age, label in _AGES if age in ages],
        "most_dead": queries.most_dead(visit.queries, 10),
        "findings": findings_page(visit.queries, (1 << 63) - 1, 5, only_live=True),
    }


PAGE = Page("overview", "Overview", overview, in_navigation=True)

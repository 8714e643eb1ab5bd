"""The stores: their objects, and the checks that their servers failed."""

from cafcat.catalog.console.stores import stores as all_stores
from cafcat.serve.console.page import Content, Page, Visit

__all__ = ["PAGE"]


def stores(visit: Visit) -> Content:
    """Return all stores."""
    return {"stores": all_stores(visit.queries)}


PAGE = Page("stores", "Stores", stores, in_navigation=True)

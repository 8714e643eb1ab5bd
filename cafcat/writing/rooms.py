"""What a process of its own needs before it can read or write a chunk."""

from collections.abc import Callable

from cafcat.catalog.catalog import Catalog
from cafcat.stores.base import Store

__all__ = ["Rooms"]

Rooms = Callable[[], tuple[Catalog, Callable[[str], Store]]]
"""Opens the catalog, and stores by their URLs in `chunks.store`, anew, in another process: has to be picklable."""

"""How often Python looks for reference cycles in the processes that cafcat starts."""

import gc
from typing import Final

__all__ = ["collect_rarely"]

_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
"""Number of new objects after which Python looks for reference cycles. Imports, and listings of files, make
thousands of objects that stay and have no cycles. With Python's own number, a seventh of the processor time of
`cafcat stat` goes there."""


def collect_rarely() -> None:
    """Let Python look for reference cycles less often. Other processes than cafcat's own restore it."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])

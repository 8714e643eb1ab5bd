"""How often Python looks for reference cycles in the processes that cafcat starts."""

import gc
from typing import Final

__all__ = ["collect_as_server", "collect_rarely"]

_OBJECTS_OF_COMMAND: Final = 150_000
"""Number of new objects after which a command looks for reference cycles. The start of a command makes 60,000 to
80,000 objects, nearly all of which stay. One search of 50,000 takes 14 ms, a tenth of the time of `cafcat stat`."""
_OBJECTS_OF_SERVER: Final = 50_000
"""The same for servers. Nobody is served during a search, so each search has fewer objects."""


def collect_rarely() -> None:
    """Let Python look for reference cycles less often. Other processes than cafcat's own restore it."""
    _set_threshold(_OBJECTS_OF_COMMAND)


def collect_as_server() -> None:
    """Let Python look for reference cycles as often as a server should. See `collect_rarely`."""
    _set_threshold(_OBJECTS_OF_SERVER)


def _set_threshold(objects: int) -> None:
    gc.set_threshold(objects, *gc.get_threshold()[1:])

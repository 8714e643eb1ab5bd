"""The connections of one process: how many there are, and the limits of their times."""

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from cafcat.serve.observing import Metrics
from cafcat.serve.options import ServeOptions

if TYPE_CHECKING:
    from cafcat.serve.protocol import LimitedProtocol

__all__ = ["Connections"]

_CHECK_SECONDS: Final = 0.5


class _Limits(NamedTuple):
    """Times in seconds, as in ServeOptions."""

    connections: int
    idle: float
    head: float
    request: float
    stall: float


class Connections:
    """The connections of one process, on all of its ports.

    Attributes:
        limits: Their number and times.
        idle: The connections without a request, the longest idle first.
        count: Number of open connections.
    """

    def __init__(self, options: ServeOptions, most: int) -> None:
        """Create an object without connections.

        Args:
            options: Limits of times.
            most: Most connections.
        """
        self.limits = _Limits(
            most, options.idle_seconds, options.head_seconds, options.request_seconds, options.stall_seconds
        )
        self.open: dict[LimitedProtocol, None] = {}
        self.idle: dict[LimitedProtocol, None] = {}

    @property
    def count(self) -> int:
        """Number of open connections."""
        return len(self.open)

    async def watch(self, metrics: Metrics) -> None:
        """Close the connections that have exceeded a limit, twice a second, until this is cancelled.

        Args:
            metrics: Get the number of connections.
        """
        loop = asyncio.get_running_loop()
        while True:
            metrics.set_connections(len(self.open), len(self.open) - len(self.idle))
            await asyncio.sleep(_CHECK_SECONDS)
            now = loop.time()
            for connection in list(self.open):
                connection.check(now)

    def abort(self) -> None:
        """Drop all connections, with the responses on them."""
        for connection in list(self.open):
            connection.transport.abort()

    def make_room(self) -> bool:
        """Close the connection that has been idle longest, if there are too many. Return False if none is idle."""
        if self.count <= self.limits.connections:
            return True
        oldest = next(iter(self.idle), None)
        if oldest is None:
            return False
        oldest.end()
        return True

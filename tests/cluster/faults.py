"""Faults of a cluster, each at a share of the work."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psycopg

from tests.cluster.hosts import DATABASE, STORE, Network

__all__ = ["FAULTS", "Fault", "Faults"]

CUT_SECONDS = 100.0
"""How long a host is cut off, in seconds: longer than a lease."""


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        name: what happens.
        share: of the objects, that are committed when it happens.
        begin: lets it happen.
        end: repairs what does not repair itself, after CUT_SECONDS.
    """

    name: str
    share: float
    begin: Callable[[Network], None]
    end: Callable[[Network], None] | None = None


FAULTS: Sequence[Fault] = (
    Fault("kill the worker of host 1", 0.05, lambda net: net.workers[0].kill()),
    Fault(
        "cut host 2 off from the database",
        0.15,
        lambda net: net.workers[1].cut(DATABASE),
        lambda net: net.workers[1].heal(DATABASE),
    ),
    Fault(
        "cut host 3 off from the store",
        0.3,
        lambda net: net.workers[2].cut(STORE),
        lambda net: net.workers[2].heal(STORE),
    ),
    Fault("kill the scheduler", 0.5, lambda net: net.scheduler.kill()),
    Fault("kill the client", 0.75, lambda _net: None),
)


@dataclass
class Faults:
    """Lets the faults happen as the work goes on."""

    network: Network
    database_url: str
    objects: int
    kill_client: Callable[[], None]
    left: list[Fault] = field(default_factory=lambda: list(FAULTS))
    healing: list[tuple[float, Fault]] = field(default_factory=list)

    def look(self) -> None:
        """Let the next fault happen if it is due, and end those whose time is over. Restart ended programs."""
        for moment, fault in list(self.healing):
            if time.monotonic() > moment and fault.end is not None:
                self.healing.remove((moment, fault))
                fault.end(self.network)
                say(f"end: {fault.name}")
        if self.left and self.committed() >= self.left[0].share * self.objects:
            self._happen(self.left.pop(0))
        for host in self.network.hosts:
            if host.watch():
                say(f"the program of {host.name} was started again")

    def _happen(self, fault: Fault) -> None:
        say(f"{self.committed()} objects are committed: {fault.name}")
        fault.begin(self.network)
        if fault.name == "kill the client":
            self.kill_client()
        if fault.end is not None:
            self.healing.append((time.monotonic() + CUT_SECONDS, fault))

    def committed(self) -> int:
        with psycopg.connect(self.database_url) as connection:
            row = connection.execute("SELECT count(*) FROM file_locations").fetchone()
        assert row is not None
        return int(row[0])


def say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)

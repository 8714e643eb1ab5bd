"""Objects that a forked process must renew: connections, clients and locks, which it shares with its parent."""

import os
from typing import Final, Protocol
from weakref import WeakSet

__all__ = ["RenewedAfterFork", "keep_open", "renew_after_fork"]


class RenewedAfterFork(Protocol):
    """An object with connections, open files or locks that a forked process cannot share with its parent."""

    def after_fork(self) -> None:
        """Forget the parent's connections and locks. A forked process calls this before anything else."""


_RENEWED: Final = WeakSet[RenewedAfterFork]()
_OPEN: Final[list[object]] = []


def renew_after_fork(item: RenewedAfterFork) -> None:
    """Call `item.after_fork()` in every process that is forked from this one, as long as the object exists."""
    _RENEWED.add(item)


def keep_open(*inherited: object) -> None:
    """Keep objects of the parent process until this process ends.

    Garbage collection would close them, and with them the connections of the parent.
    """
    _OPEN.extend(inherited)


def _after_fork() -> None:
    for item in list(_RENEWED):
        item.after_fork()


os.register_at_fork(after_in_child=_after_fork)

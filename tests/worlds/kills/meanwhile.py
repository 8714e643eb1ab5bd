"""Run operations at the same time, in threads, and wait until one blocks another."""

import threading
import time
from collections.abc import Callable
from typing import Any

import cafcat
from tests.worlds.catalog_world import sql
from tests.worlds.waiting import PATIENCE_SECONDS

__all__ = ["InBackground", "in_background", "wait_for_a_waiting_statement"]


def wait_for_a_waiting_statement(
    repository: cafcat.Repository, or_until: Callable[[], bool] = lambda: False
) -> None:
    """Wait until a connection waits for a lock, or until `or_until` returns True."""
    statement = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sql(repository, statement) == [(0,)] and not or_until():
        assert time.monotonic() < deadline


class InBackground(threading.Thread):
    """A thread that runs a function. `done` waits for it, and returns its result or raises its error."""

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._act = act
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._act()
        except BaseException as error:
            self._error = error

    def done(self) -> Any:
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive()
        if self._error is not None:
            raise self._error
        return self._result


def in_background(act: Callable[[], Any]) -> InBackground:
    thread = InBackground(act)
    thread.start()
    return thread

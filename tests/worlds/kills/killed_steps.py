"""Count the steps of this process, and kill it at a given step.

A step is a call that makes something durable or visible. This module imports nothing of cafcat, so that a program
can start counting before it imports cafcat.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Steps"]


class Steps:
    """Kills the process at the step of this number; 0 never kills.

    after: the end of a call is a step, too. Otherwise only the beginning of a call is a step.
    """

    def __init__(self, number: int = 0, *, after: bool = False) -> None:
        self._left = number
        self._after = after
        self._lock = threading.Lock()

    def count_files(self) -> None:
        self.count(os, "fsync", "link", "unlink", "write", "replace")

    def count_statements(self) -> None:
        import psycopg

        self.count(psycopg.Connection, "execute", "transaction")
        self.count(psycopg.Transaction, "__exit__")
        self.count(psycopg.Copy, "write")

    def count(self, owner: Any, *names: str) -> None:
        """Count the calls of these functions of a module or class from now on."""
        for name in names:
            setattr(owner, name, self._counted(getattr(owner, name)))

    def begin_at(self, owner: Any, name: str, number: int) -> None:
        """Kill the process at this step, counted from the first call of a function."""
        function = getattr(owner, name)

        def begin(*arguments: Any, **named: Any) -> Any:
            setattr(owner, name, function)
            self._left = number
            return function(*arguments, **named)

        setattr(owner, name, begin)

    def end(self) -> None:
        """Stop counting."""
        with self._lock:
            self._left = 0

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self._step()
            result = function(*arguments, **named)
            if self._after:
                self._step()
            return result

        return counted

    def _step(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

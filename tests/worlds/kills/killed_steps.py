"""In a process that kills itself: counts its steps, and dies at the one that it was told.

A step is a call of what makes something durable or visible. This imports nothing of cafcat, so that a program can
count before it imports any.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Steps"]


class Steps:
    """Dies with the step of that number, and never at 0. With `after` the end of a call is a step as well: else it
    only dies before a call, which is after the one before."""

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
        """These functions of a module or class are steps from now on."""
        for name in names:
            setattr(owner, name, self._counted(getattr(owner, name)))

    def begin_at(self, owner: Any, name: str, number: int) -> None:
        """Number 1 is the first step after the first call of this function."""
        function = getattr(owner, name)

        def begin(*arguments: Any, **named: Any) -> Any:
            setattr(owner, name, function)
            self._left = number
            return function(*arguments, **named)

        setattr(owner, name, begin)

    def end(self) -> None:
        """Nothing is a step from now on."""
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

"""Ends the wait for a database server that does not answer any more.

The operating system ends a connection whose packets nobody acknowledges (the keepalives and tcp_user_timeout of the
database URL). That does not help against a proxy or a server that is frozen: its operating system goes on to
acknowledge. On the other hand, a long query is no reason to give up. So after a minute without an answer, a new
connection is tried. If the server accepts it, or refuses it with a message, the wait goes on.
"""

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo

__all__ = ["LiveCheck"]

Result = TypeVar("Result")


class LiveCheck:
    """Finds out whether the server of a connection still answers.

    Attributes:
        silent_seconds: How long a statement waits for bytes of the server before a new connection is tried.
    """

    def __init__(self, connection: "psycopg.Connection[Any]", conninfo: str, silent_seconds: float) -> None:
        """Create the check. It does not connect yet.

        Args:
            connection: The connection. It is closed if its server does not answer.
            conninfo: The libpq keywords with which it was opened. They have a connect_timeout.
            silent_seconds: Longest silence, in seconds.
        """
        info = connection.info
        place = {"host": info.host, "port": str(info.port), "hostaddr": info.hostaddr}
        self._conninfo = make_conninfo(conninfo, **{name: value for name, value in place.items() if value})
        self._connection = connection
        self.silent_seconds = silent_seconds

    def watched(self, steps: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        """Run a generator of psycopg, and check the server after each `silent_seconds` without a byte of it.

        Args:
            steps: Yields what it waits for, and gets what has become ready; something false after a short time
                without.
        """
        silent_since = None  # read the clock only in long waits: most statements take less than a millisecond
        ready = None
        while True:
            try:
                wanted = steps.send(ready)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            ready = yield wanted
            if ready:
                silent_since = None
            elif silent_since is None:
                silent_since = time.monotonic()
            elif time.monotonic() - silent_since >= self.silent_seconds:
                self._check()
                silent_since = None

    def _check(self) -> None:
        """Return if the server answers.

        Raises:
            psycopg.OperationalError: It does not answer. The connection was closed.
        """
        try:
            psycopg.Connection.connect(self._conninfo).close()
        except psycopg.OperationalError as error:
            if "FATAL:" in str(error):
                return  # an answer, such as that there are too many clients
            self._connection.pgconn.finish()
            message = f"the server was silent for {self.silent_seconds:g} s, and accepts no new connection: {error}"
            raise psycopg.OperationalError(message) from error

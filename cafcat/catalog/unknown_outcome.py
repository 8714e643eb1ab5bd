"""Transactions whose connection is lost before the server's answer arrives."""

from collections.abc import Callable
from typing import Final, TypeVar

from cafcat.catalog.connection import PgConnection
from cafcat.catalog.locking import set_lock_timeout
from cafcat.errors import CatalogDenied, CatalogLocked, CatalogUnavailable

__all__ = ["commit_with_check", "limit_wait_for_outcome"]

_ATTEMPTS: Final = 3
_OUTCOME_SECONDS: Final = 60.0
"""How long to wait for the end of a transaction that the server may still be executing, in seconds."""
Result = TypeVar("Result")


def commit_with_check(function: Callable[[], Result], look: Callable[[], Result | None]) -> Result:
    """Run a transaction. If its result is unknown, because the connection was lost, find out if it was committed.

    If it was not committed, it is run again, at most three times in all.

    Args:
        function: Runs the transaction and returns its result. CatalogDenied, CatalogLocked, and errors
            other than CatalogUnavailable, are raised at once.
        look: Called after `function` raised CatalogUnavailable. Returns the result if the server committed the
            transaction, else None. Raises CatalogLocked if the server may still be executing it.

    Returns:
        The result of the transaction.

    Raises:
        CatalogDenied: The role may not do this, or the server can only read.
        CatalogLocked: The transaction waited too long for a lock, and was rolled back.
        CatalogUnavailable: The transaction failed three times, or its outcome cannot be found out.
    """
    for number in range(1, _ATTEMPTS + 1):
        try:
            return function()
        except (CatalogDenied, CatalogLocked):
            raise  # the transaction was certainly rolled back, and its wait for a lock is over
        except CatalogUnavailable as error:
            try:
                done = look()
            except CatalogLocked as locked:
                raise _unknown(error, locked) from locked
            if done is not None:
                return done
            if number == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def limit_wait_for_outcome(connection: PgConnection) -> None:
    """Limit how long each later statement of the open transaction waits for a lock, to 60 seconds.

    The statements of `look` wait so long for a transaction that the server is still executing.
    """
    set_lock_timeout(connection, _OUTCOME_SECONDS)


def _unknown(error: CatalogUnavailable, locked: CatalogLocked) -> CatalogUnavailable:
    """Return the error for a transaction whose outcome is unknown, because the server may still be executing it."""
    message = f"it is unknown whether a change of the catalog was committed: {error.message}; {locked.message}"
    hint = "when that server process has ended its transaction, run the command again"
    return CatalogUnavailable(message, hint=hint)

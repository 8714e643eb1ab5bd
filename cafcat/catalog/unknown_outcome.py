"""Transactions whose connection is lost before the server's answer arrives."""

from collections.abc import Callable
from typing import Final, TypeVar

from cafcat.errors import CatalogLocked, CatalogUnavailable

__all__ = ["commit_with_check"]

_ATTEMPTS: Final = 3
Result = TypeVar("Result")


def commit_with_check(function: Callable[[], Result], look: Callable[[], Result | None]) -> Result:
    """Run a transaction. If its result is unknown, because the connection was lost, find out if it was committed.

    If it was not committed, it is run again, at most three times in all.

    Args:
        function: Runs the transaction and returns its result. CatalogLocked, and errors other than
            CatalogUnavailable, are raised at once.
        look: Called after `function` raised CatalogUnavailable. Returns the result if the server committed the
            transaction, else None.

    Returns:
        The result of the transaction.

    Raises:
        CatalogLocked: The transaction waited too long for a lock, and was rolled back. Or `look` waited too long:
            then the outcome of the transaction is unknown.
        CatalogUnavailable: The transaction failed three times, or its outcome cannot be found out.
    """
    for number in range(1, _ATTEMPTS + 1):
        try:
            return function()
        except CatalogLocked:
            raise  # the transaction was certainly rolled back, and its wait for the lock is over
        except CatalogUnavailable:
            if (done := look()) is not None:
                return done
            if number == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")

"""What becomes of a transaction when the connection is lost before its answer has come."""

from collections.abc import Callable
from typing import Final, TypeVar

from cafcat.errors import CatalogLocked, CatalogUnavailable

__all__ = ["settled"]

_ATTEMPTS: Final = 3
Result = TypeVar("Result")


def settled(attempt: Callable[[], Result], look: Callable[[], Result | None]) -> Result:
    """What a transaction returns. A lost connection is settled by looking: `look` returns what the attempt did
    after all, None if nothing; then it is tried again, three times in all. Raises CatalogUnavailable if it could
    not be done or nobody can tell, and what else an attempt raises."""
    for number in range(1, _ATTEMPTS + 1):
        try:
            return attempt()
        except CatalogLocked:
            raise  # it was rolled back for certain, and has waited as long as it may
        except CatalogUnavailable:
            if (done := look()) is not None:
                return done
            if number == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")

"""Checks that an argument is a list of names and not a single name."""

from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

from cafcat.errors import InvalidInput

__all__ = ["check_names"]

Names = TypeVar("Names", bound=Iterable[str | UUID])


def check_names(names: Names) -> Names:
    """Return a list of names unchanged.

    Raises:
        InvalidInput: The argument is a single string. Iterating would give its letters.
    """
    if isinstance(names, str | bytes):
        raise InvalidInput("the names must be a list, not one name", hint=f"write [{names!r}]")
    return names

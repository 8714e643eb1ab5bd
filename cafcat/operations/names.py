"""Lists of names that callers pass."""

from collections.abc import Iterable
from typing import TypeVar

from cafcat.errors import InvalidInput

__all__ = ["check_names"]

Names = TypeVar("Names", bound=Iterable[str])


def check_names(names: Names) -> Names:
    """Return the names. Raises InvalidInput for a single string, whose letters would be taken for names."""
    if isinstance(names, str | bytes):
        raise InvalidInput("names are a list", hint=f"write [{names!r}]")
    return names

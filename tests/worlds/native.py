"""Compares the native part with its equal in Python."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from cafcat.errors import CafcatError
from cafcat.native.library import library, turned_off, why_unused

__all__ = ["both_ways", "needs_library"]

Result = TypeVar("Result")

needs_library = pytest.mark.skipif(library() is None, reason=f"no native part: {why_unused()}")


def both_ways(function: Callable[[], Result]) -> Result | tuple[str, str]:
    """Call a function with the library and without, and return its result, or the kind and text of its error.

    Both calls must have the same result.
    """
    with_library = _outcome(function)
    with turned_off():
        without = _outcome(function)
    assert with_library == without
    return with_library


def _outcome(function: Callable[[], Result]) -> Result | tuple[str, str]:
    try:
        return function()
    except CafcatError as error:
        return error.kind, str(error)

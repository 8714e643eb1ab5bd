"""Failures of single objects, which an operation notes and reports at its end."""

from collections.abc import Iterator
from contextlib import contextmanager

from cafcat.errors import CafcatError, CatalogOutdated, CatalogUnavailable

__all__ = ["note_failure"]


@contextmanager
def note_failure(failed: list[str], what: str) -> Iterator[None]:
    """Append the message of a CafcatError from the `with` block to a list, and do not raise the error.

    The operation then continues with the next object.

    Args:
        failed: The list that receives the message.
        what: Name of the object, for the message.

    Raises:
        CatalogUnavailable, CatalogOutdated: Raised unchanged, because the operation needs the catalog.
    """
    try:
        yield
    except (CatalogUnavailable, CatalogOutdated):
        raise
    except CafcatError as error:
        failed.append(f"{what}: {error}")

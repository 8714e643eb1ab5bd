"""Failures of single objects, which an operation notes and reports at its end."""

from collections.abc import Iterator
from contextlib import contextmanager

from cafcat.errors import CafcatError, CatalogOutdated, CatalogUnavailable

__all__ = ["note_failure"]


@contextmanager
def note_failure(failed: list[str], what: str) -> Iterator[None]:
    """Add the message of a CafcatError to a list, so that the operation goes on with the next object.

    Args:
        failed: The list that receives the message.
        what: Name of the object, for the message.

    Raises:
        CatalogUnavailable, CatalogOutdated: No operation can go on without the catalog.
    """
    try:
        yield
    except (CatalogUnavailable, CatalogOutdated):
        raise
    except CafcatError as error:
        failed.append(f"{what}: {error}")

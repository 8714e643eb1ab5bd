"""What goes wrong with one thing of many, and is reported when all are done."""

from collections.abc import Iterator
from contextlib import contextmanager

from cafcat.errors import CafcatError, CatalogOutdated, CatalogUnavailable

__all__ = ["reported"]


@contextmanager
def reported(failed: list[str], what: str) -> Iterator[None]:
    """Without the catalog nothing can go on; every other failure costs only what was at hand, and is put into the
    list."""
    try:
        yield
    except (CatalogUnavailable, CatalogOutdated):
        raise
    except CafcatError as error:
        failed.append(f"{what}: {error}")

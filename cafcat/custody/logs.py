"""Log files in archives of logs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cafcat.custody.base import Keeper

if TYPE_CHECKING:
    from cafcat.catalog.log_units import StoredUnit

__all__ = ["Logs"]


class Logs(Keeper):
    """units."""

    def units(self, prefix: str = "") -> "Iterator[StoredUnit]":
        """Log files in archives that are not deleted, below a folder or of that name, in order of name; "" or ".":
        all. Names are those that the archives have for them. Each with its records, and where the archive is."""
        return self._catalog.logs.below(folder_of(prefix))


def folder_of(prefix: str) -> str:
    """Without slashes at its end; "" for everything. A leading one counts: archives of others have such names."""
    return "" if prefix in (".", "./") else prefix.rstrip("/")

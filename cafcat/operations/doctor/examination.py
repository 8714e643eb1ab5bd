"""The subject of the checks: settings, database and stores."""

from enum import IntEnum
from functools import cached_property
from time import time
from typing import TYPE_CHECKING, Final

from cafcat.progress import Progress
from cafcat.session import Stores
from cafcat.settings.settings import Settings

if TYPE_CHECKING:
    from cafcat.catalog.catalog import Catalog
    from cafcat.catalog.health.stores import StoreFacts
    from cafcat.catalog.health.totals import CatalogTotals
    from cafcat.settings.database import Database

__all__ = ["Examination", "Reach", "days_since"]

_DAY: Final = 86_400


class Reach(IntEnum):
    """How much of the database a check needs, and how much was reached."""

    NOTHING = 0
    """No database."""
    SERVER = 1
    """A server that answers."""
    CATALOG = 2
    """A schema of the right revision."""
    NUMBERS = 3
    """The numbers of the catalog (`Examination.totals`)."""


class Examination:
    """Settings, database and stores that the checks share. Opening them changes nothing.

    Attributes:
        settings: The settings.
        stores: Stores by their URL. Each is opened when it is used first.
        timeout_seconds: How long one check, or one store of a check, may take.
        reach: How much of the database was reached so far: the checks `database`, `schema` and `catalog` set it.
    """

    def __init__(self, settings: Settings, timeout_seconds: float) -> None:
        self.settings = settings
        self.stores = Stores(settings, warnings=Progress())
        self.timeout_seconds = timeout_seconds
        self.reach = Reach.NOTHING

    @cached_property
    def database(self) -> "Database":
        """The database of the settings."""
        from cafcat.settings.database import Database

        return Database(self.settings)

    @cached_property
    def catalog(self) -> "Catalog":
        """The catalog, whose schema is left as it is."""
        return self.database.unchanged()

    @cached_property
    def totals(self) -> "CatalogTotals":
        """Numbers of the catalog, read once."""
        return self.catalog.totals.read()

    @cached_property
    def known_stores(self) -> "list[StoreFacts]":
        """Facts about the stores in the catalog, read once; empty without a catalog."""
        return self.catalog.store_health.stores() if self.reach >= Reach.CATALOG else []

    def close(self) -> None:
        """Close the connection and the files of stores. After a check that hangs, the connection is left alone."""
        self.stores.close()
        if self.reach > Reach.NOTHING:
            self.catalog.close()


def days_since(seconds: float) -> float:
    """Return how many days ago a time was, which is given in seconds since 1970."""
    return (time() - seconds) / _DAY

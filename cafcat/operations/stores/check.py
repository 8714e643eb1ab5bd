"""Check of a store's features. The result is stored in the catalog."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cafcat.progress import Progress
from cafcat.session import Stores
from cafcat.settings.settings import Settings
from cafcat.settings.stores import chosen_url, possible_name
from cafcat.settings.values import GivenValue
from cafcat.stores.base import ProbedStore
from cafcat.stores.probing import Finding, probe

if TYPE_CHECKING:
    from cafcat.catalog.catalog import Catalog

__all__ = ["CheckedStore", "check_store"]


class CheckedStore(NamedTuple):
    """Result of the check of a store.

    Attributes:
        url: URL of the store.
        findings: One for each feature that was tried.
        is_usable: True if all features that cafcat needs work.
        is_remembered: True if the catalog has the store, and has stored which checks failed.
    """

    url: str
    findings: tuple[Finding, ...]
    is_usable: bool
    is_remembered: bool


def check_store(settings: Settings, named: str) -> CheckedStore:
    """Check a store. See `Repository.check_store`."""
    with _catalog_if_any(settings) as catalog:
        store = Stores(settings, warnings=Progress())[_url_of(named, settings, catalog)]
        findings = tuple(probe(store))
        is_usable = all(finding.works for finding in findings if finding.is_needed)
        is_remembered = (
            catalog is not None
            and isinstance(store, ProbedStore)
            and catalog.verdicts.replace(store.url, list(store.failed_checks))
        )
    return CheckedStore(store.url, findings, is_usable, is_remembered)


@contextmanager
def _catalog_if_any(settings: Settings) -> Iterator["Catalog | None"]:
    """Open the catalog; None if the embedded database does not exist yet."""
    if settings.database_url is None and not (settings.home / "postgres").is_dir():
        yield None
        return
    from cafcat.settings.database import Database

    with closing(Database(settings).catalog()) as catalog:
        yield catalog


def _url_of(named: str, settings: Settings, catalog: "Catalog | None") -> str:
    name = possible_name(named, settings.stores)
    url = catalog.stores.url_of(name) if name is not None and catalog is not None else None
    return url or chosen_url(GivenValue(named, "argument", Path.cwd()), "store", settings.stores)

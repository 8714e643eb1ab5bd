"""Trying what a store can do, and keeping the result in the catalog."""

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from cafcat.settings import Settings
from cafcat.settings_stores import chosen_url
from cafcat.settings_values import Given
from cafcat.stores.probing import Finding, probe
from cafcat.stores.s3 import S3Store
from cafcat.wiring import Stores

__all__ = ["CheckedStore", "checked_store"]


class CheckedStore(NamedTuple):
    """What a look at a store found.

    Attributes:
        url: URL of the store.
        findings: One for each feature that was tried.
        is_usable: Every feature works that cafcat needs.
        is_remembered: The catalog has the store, and keeps which checks failed.
    """

    url: str
    findings: tuple[Finding, ...]
    is_usable: bool
    is_remembered: bool


def checked_store(settings: Settings, named: str) -> CheckedStore:
    """See Repository.check_store."""
    url = chosen_url(Given(named, "argument", Path.cwd()), "store", settings.stores)
    store = Stores(settings, warn=lambda _message: None)[url]
    findings = tuple(probe(store))
    is_usable = all(finding.works for finding in findings if finding.is_needed)
    is_remembered = isinstance(store, S3Store) and _remember(settings, store)
    return CheckedStore(store.url, findings, is_usable, is_remembered)


def _remember(settings: Settings, store: S3Store) -> bool:
    """Replace the verdicts of a store that the catalog has. No embedded database is made for that."""
    if settings.database_url is None and not (settings.home / "postgres").is_dir():
        return False
    from cafcat.database import Database

    with closing(Database(settings).catalog()) as catalog:
        return catalog.verdicts.replace(store.url, [check.value for check in store.checks.failed])

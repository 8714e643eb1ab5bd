"""Tests the features of a store for `cafcat store check`. The catalog stores which checks an S3 server failed."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cafcat.operations.chosen_stores import check_new_store
from cafcat.operations.reachable_stores import check_present
from cafcat.progress import Progress
from cafcat.session import Stores
from cafcat.settings.settings import Settings
from cafcat.settings.stores import chosen_url, possible_name
from cafcat.settings.values import GivenValue
from cafcat.stores.base import FolderStore, ProbedStore, Store
from cafcat.stores.marker import catalogs_of
from cafcat.stores.probing import Finding, probe

if TYPE_CHECKING:
    from cafcat.catalog.catalog import Catalog

__all__ = ["CheckedStore", "check_store"]


class CheckedStore(NamedTuple):
    """Result of one `cafcat store check`.

    Attributes:
        url: URL of the store.
        findings: A finding for each feature that was tested.
        is_usable: True if all features that cafcat needs work.
        is_remembered: True if the catalog now remembers which checks failed: it has the store, and the store has
            tests of its own (ProbedStore), as an S3 server has.
    """

    url: str
    findings: tuple[Finding, ...]
    is_usable: bool
    is_remembered: bool


def check_store(settings: Settings, named: str) -> CheckedStore:
    """Test the features of a store with small objects, which are removed afterwards.

    A folder that is missing is created for the test, and removed afterwards, too.

    If the catalog has the store, and the store has tests of its own (ProbedStore), the catalog remembers which of
    them failed.

    Args:
        settings: Settings with the stores and the database.
        named: The store: a name, a URL or a folder.

    Raises:
        InvalidInput: The text is not a valid URL or path, or the URL cannot be opened. Or it names no store, and is
            a bare word without a folder of this name, the path of a file, or of a folder in a folder that does not
            exist.
        Unsupported: No kind of store has the scheme of the URL.
        NotFound: There is no such bucket or folder.
        AccessDenied: The store refuses the credentials.
        StoreFailed: The store does not answer.
        Unavailable: The catalog has objects in the store, and the store is not at its URL any more.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    with _catalog_if_any(settings) as catalog:
        store = Stores(settings, warnings=Progress())[_url_of(named, settings, catalog)]
        is_known = catalog is not None and catalog.stores.has(store.url)
        if catalog is not None:
            check_present(store, catalog)
        check_new_store(store, None if is_known else possible_name(named, settings.stores))
        catalogs_of(store)  # some servers make the bucket of a first upload
        with _no_folder_left(store):
            findings = tuple(probe(store))
        is_usable = all(finding.works for finding in findings if finding.is_needed)
        is_remembered = (
            catalog is not None
            and isinstance(store, ProbedStore)
            and catalog.verdicts.replace(store.url, list(store.failed_checks))
        )
    return CheckedStore(store.url, findings, is_usable, is_remembered)


@contextmanager
def _no_folder_left(store: Store) -> Iterator[None]:
    """Remove the folder of a store at the end of the block, if the folder was missing before and is empty."""
    missing = store.folder if isinstance(store, FolderStore) and not os.path.isdir(store.folder) else None
    try:
        yield
    finally:
        if missing is not None:
            with suppress(OSError):
                os.rmdir(missing)


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

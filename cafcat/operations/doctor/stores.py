"""Checks of the stores: reachable, those of this catalog, writable as far as that can be known without writing."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from cafcat.catalog.health.stores import NewestRecord, StoreFacts
from cafcat.errors import CafcatError, InvalidInput, NotFound
from cafcat.operations.chosen_stores import check_parent
from cafcat.operations.doctor.examination import Examination, Reach
from cafcat.operations.doctor.found import Found, error, failed, ok, warning
from cafcat.operations.doctor.report import Level
from cafcat.stores.base import FolderStore, Store, has
from cafcat.stores.marker import catalogs_of, marker_key, read_marker, read_markers
from cafcat.stores.presence import why_not_there
from cafcat.support.time_limit import call_all_within
from cafcat.writing.journal import journal_key

__all__ = ["stores", "used_stores"]

_LOOK: Final = "check its disk, its server and the network"


def stores(examination: Examination) -> Iterator[Found]:
    """Check all stores at the same time, with a few read requests for each store."""
    health = examination.catalog.store_health if examination.reach >= Reach.CATALOG else None
    catalog = health.catalog() if health else None
    facts_of = used_stores(examination)
    records = {url: health.newest_records(url) for url, facts in facts_of.items() if health and facts.has_own}
    checks = {
        url: partial(_check, examination, facts, catalog, records.get(url, ())) for url, facts in facts_of.items()
    }
    for url, found in call_all_within(checks, examination.timeout_seconds).items():
        level = Level.ERROR if facts_of[url].has_own or url == _default(examination) else Level.WARNING
        if isinstance(found, CafcatError | OSError) and not isinstance(found, TimeoutError):
            yield failed(found, _LOOK, level)
        elif isinstance(found, TimeoutError):
            yield Found(level, f"the store {url}: {found}", f"{_LOOK}, or give more time with --timeout")
        elif isinstance(found, Exception):
            raise found
        else:
            yield from found


def _default(examination: Examination) -> str:
    """Return the URL of the store for new chunks, as far as it can be known without a catalog."""
    name = examination.settings.store_name
    named = [facts.url for facts in examination.known_stores if name is not None and facts.name == name]
    return named[0] if named else examination.stores[examination.settings.store].url


def used_stores(examination: Examination) -> dict[str, StoreFacts]:
    """Return by URL the stores of the catalog, and the store for new chunks, which the catalog may not have.

    Stores that were used, and have no objects any more, are left out: nothing has to be read or written there.
    """
    url = _default(examination)
    new = StoreFacts(url, None, None, has_own=False, has_adopted=False, is_tested=False, failed_checks=[])
    in_use = [
        facts
        for facts in examination.known_stores
        if facts.has_own or facts.has_adopted or facts.uuid is None or facts.url == url
    ]
    return {url: new} | {facts.url: facts for facts in in_use}


def _check(
    examination: Examination, facts: StoreFacts, catalog: UUID | None, records: Sequence[NewestRecord]
) -> list[Found]:
    """Return the results for one store. Raises the errors of a store that does not answer.

    Args:
        examination: The examination.
        facts: The store.
        catalog: UUID of the catalog; None without a catalog.
        records: Journal records that the store must have.
    """
    store = examination.stores[facts.url]
    others = {known.uuid: known.url for known in examination.known_stores if known.url != facts.url}
    in_home = examination.settings.origins["store"] == "default" and facts.url == _default(examination)
    found = [_belonging(store, facts, catalog, others, in_home=in_home)]
    if found[0].level is not Level.ERROR:
        found += _journal(store, records)
    if isinstance(store, FolderStore):
        found += _writable(store.folder)
    elif not facts.is_tested:
        remedy = f"run: cafcat store check {shlex.quote(facts.url)} (it writes a test object, and removes it)"
        found.append(warning(f"the catalog has no test of the server of {facts.url}", remedy))
    if facts.failed_checks:
        text = f"the server of {facts.url} lacks features: {', '.join(facts.failed_checks)}"
        remedy = f"`cafcat store check {shlex.quote(facts.url)}` shows what cafcat does instead (docs/s3.md)"
        found.append(warning(text, remedy))
    return found


def _belonging(
    store: Store, facts: StoreFacts, catalog: UUID | None, others: Mapping[UUID | None, str], *, in_home: bool
) -> Found:
    """Compare the marker in a store with the catalog. This sends one or two requests.

    Args:
        store: The store.
        facts: Its facts.
        catalog: UUID of the catalog; None without a catalog.
        others: URLs of the catalog's other stores by their UUIDs.
        in_home: True if the store is the default one, in the home.
    """
    marker = None if catalog is None else read_marker(store, catalog)
    if marker is None:
        return _without_marker(store, facts, catalog, in_home=in_home)
    if facts.uuid in (None, marker.store):
        return ok(f"{facts.url} answers, and has the marker of this catalog")
    if (original := others.get(marker.store)) is not None:
        text = f"{facts.url} is a copy of {original}: its marker has the UUID of that store"
        place = store.locate(marker_key(marker.catalog))
        remedy = f"if the copy is meant, remove {place}: the next ingest makes another"
        return warning(text, remedy)
    text = f"{facts.url} is another store than the catalog has there: its marker has the UUID {marker.store}"
    return error(text, "mount the right disk, or enter the new place: cafcat store move")


def _journal(store: Store, records: Sequence[NewestRecord]) -> list[Found]:
    """Look for the newest journal records of a store. This sends one to three requests.

    If the newest chunk is gone, too, its record is not missed: prune removes both, and the catalog of an older
    backup still has the chunk.
    """
    keys = [journal_key(record.id, record.uuid) for record in records]
    lacking = [key for key in keys if not has(store, key)]
    if not lacking or not has(store, records[0].chunk_key):
        return []
    text = f"{store.url} lacks its journal record {lacking[0]}: a rebuild would bring removed files back"
    remedy = "bring the folder journal back, or another store with copies; until then, run: cafcat backup"
    return [error(text, remedy)]


def _without_marker(store: Store, facts: StoreFacts, catalog: UUID | None, *, in_home: bool) -> Found:
    why = why_not_there(store)
    if facts.has_own:
        return _used_without_marker(store, facts, why)
    if why is None:
        return _not_joined(store, catalog)
    if facts.has_adopted:
        return ok(f"{facts.url} has adopted archives only")
    try:
        catalogs_of(store)  # raises NotFound for a missing bucket
        if not in_home:  # cafcat makes the home and its folders
            check_parent(store)
    except (NotFound, InvalidInput) as missing:
        return error(missing.message, missing.hint or _LOOK)
    return ok(f"{facts.url} has no objects yet: {why}")


def _used_without_marker(store: Store, facts: StoreFacts, why: str | None) -> Found:
    """Return the result for a store with objects in the catalog; `why` is why it seems not to be there."""
    if why is not None:
        text = f"{facts.url} has objects in the catalog, but {why}"
        remedy = "is its disk mounted? If it was moved: cafcat store move; if it is lost: cafcat store rm --lost"
        return error(text, remedy)
    if facts.uuid is not None and (others := catalogs_of(store)):
        text = f"{facts.url} is a store of another catalog, {others[0]}, and has no marker of this one"
        return error(text, "mount the right disk, or enter the new place: cafcat store move")
    text = f"{facts.url} answers, and has no marker of this catalog"
    return warning(text, "the next ingest, copy or repair there makes one; is it the right store?")


def _not_joined(store: Store, catalog: UUID | None) -> Found:
    """Return the result for a store with objects of cafcat, of which this catalog has none."""
    others = [str(uuid) for uuid, _ in read_markers(store) if uuid != catalog]
    if not others:
        return ok(f"{store.url} answers")
    if catalog is None:
        names = ", ".join(others)
        return ok(
            f"{store.url} answers, and has objects of the catalog {names}; no database answers to compare it with"
        )
    text = f"{store.url} belongs to another catalog: {', '.join(others)}"
    remedy = "if its catalog was lost, run cafcat rebuild or cafcat restore; else use another store"
    return warning(text, remedy)


def _writable(folder: str) -> list[Found]:
    """Check that a folder, or the nearest one above it, can be written to."""
    existing = folder
    while not os.path.isdir(existing) and existing != os.path.dirname(existing):
        existing = os.path.dirname(existing)
    if os.statvfs(existing).f_flag & os.ST_RDONLY:
        return [warning(f"{existing} is mounted read-only", "mount it for writing, or use another store")]
    if not os.access(existing, os.W_OK | os.X_OK):
        remedy = "change its owner or permissions, or run cafcat as another user"
        return [warning(f"this user may not write to {existing}", remedy)]
    return []

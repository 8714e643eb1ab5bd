"""The marker of a store: which catalogs write their chunks there.

It is one small object for each of these catalogs, `catalogs/<uuid of the catalog>.json`. So a catalog that joins
replaces nothing, two that join at the same time do not touch each other's object, and a catalog sees by one read
whether it belongs to the store. docs/formats/marker.md has the format.
"""

import json
import re
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from cafcat.errors import Corrupt, NotFound, Unsupported
from cafcat.stores.base import Store
from cafcat.stores.keys import MARKER_PREFIX
from cafcat.stores.putting import put_once

__all__ = [
    "MARKER_BYTES",
    "Marker",
    "catalogs_of",
    "encode_marker",
    "marker_key",
    "read_marker",
    "read_markers",
    "remove_marker",
    "write_marker",
]

VERSION: Final = 1
MARKER_BYTES: Final = 1024
"""Size of every marker object: its length need not be asked for before it is read."""

_MAX_HOST_CHARACTERS: Final = 100
_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_KEY: Final = re.compile(re.escape(MARKER_PREFIX) + rf"({_UUID})\.json", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


class Marker(NamedTuple):
    """One catalog that writes into a store.

    store: identity of the store, the same in all of its markers. since: when the marker was written, ISO 8601 in
    UTC. has_unnamed: true if objects that name no catalog, as those of earlier versions, belong to this one. host:
    the machine that wrote the marker. database: where the catalog was then, a URL without user and password. The
    last two help people to find the catalog; nothing depends on them.
    """

    store: UUID
    catalog: UUID
    since: str
    has_unnamed: bool
    host: str
    database: str


def marker_key(catalog: UUID) -> str:
    """Return the key of a catalog's marker object, the same in every store."""
    return f"{MARKER_PREFIX}{catalog}.json"


def encode_marker(marker: Marker) -> bytes:
    """Return the bytes of a marker object: MARKER_BYTES of them. A database name that does not fit is cut."""
    document: dict[str, Any] = {"cafcat_catalog": VERSION} | marker._asdict()
    document |= {"store": str(marker.store), "catalog": str(marker.catalog)}
    document["host"] = marker.host[:_MAX_HOST_CHARACTERS]
    while len(line := _line(document)) >= MARKER_BYTES:
        document["database"] = document["database"][: len(document["database"]) * 3 // 4]
    return line.ljust(MARKER_BYTES - 1) + b"\n"


def catalogs_of(store: Store) -> list[UUID]:
    """Return the catalogs that have a marker in the store, in order of uuid: one listing. Raises StoreFailed,
    AccessDenied."""
    keys = (_KEY.fullmatch(found.key) for found in store.list(MARKER_PREFIX))
    return [UUID(key[1]) for key in keys if key is not None]


def read_marker(store: Store, catalog: UUID) -> Marker | None:
    """Return a catalog's marker, None if the store has none: one request.

    Raises:
        Corrupt: the marker is damaged.
        Unsupported: a later version wrote it.
        StoreFailed, AccessDenied: the store does not answer.
    """
    key = marker_key(catalog)
    try:
        return _decoded(store.read(key, 0, MARKER_BYTES), catalog)
    except NotFound:
        return None
    except (Corrupt, ValueError) as error:
        hint = "remove this object and run the command again: the catalog writes a new one"
        message = f"the marker of a catalog is damaged: {_reason(error)}"
        raise Corrupt(message, chunk=store.locate(key), hint=hint) from error


def read_markers(store: Store) -> list[tuple[UUID, Marker | None]]:
    """Return every catalog that has a marker in the store, and the marker, None if it cannot be read: one listing,
    and one request for each. Raises StoreFailed, AccessDenied."""
    return [(catalog, _readable(store, catalog)) for catalog in catalogs_of(store)]


def write_marker(store: Store, marker: Marker) -> None:
    """Write a catalog's marker, or leave it as it is if the store has one. It is durable when this returns. The
    caller holds a lock that keeps away other processes of the same catalog. Raises StoreFailed, AccessDenied."""
    put_once(store, marker_key(marker.catalog), lambda: [encode_marker(marker)])


def remove_marker(store: Store, catalog: UUID) -> None:
    """Remove a catalog's marker, and an upload of it that a dead writer left. No error if there is none. Raises
    StoreFailed."""
    key = marker_key(catalog)
    store.discard(key)
    store.delete(key)


def _readable(store: Store, catalog: UUID) -> Marker | None:
    try:
        return read_marker(store, catalog)
    except (Corrupt, Unsupported):
        return None


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _decoded(content: bytes, catalog: UUID) -> Marker:
    """Raises ValueError, Unsupported."""
    try:
        document = json.loads(content.decode())
    except RecursionError as error:
        raise ValueError("it is no JSON") from error
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    version = document.get("cafcat_catalog")
    if type(version) is int and version > VERSION:
        raise Unsupported(f"a store's marker of version {version}: this cafcat reads {VERSION}")
    if version != VERSION or document.get("catalog") != str(catalog):
        raise ValueError("it is not the marker of this catalog")
    has_unnamed = document.get("has_unnamed")
    if not isinstance(has_unnamed, bool):
        raise ValueError("has_unnamed is neither true nor false")
    store, since = UUID(_text(document, "store")), _text(document, "since")
    if not _TIME.fullmatch(since):
        raise ValueError("since is no time")
    datetime.fromisoformat(since)  # no February 30
    return Marker(store, catalog, since, has_unnamed, _text(document, "host"), _text(document, "database"))


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, Corrupt) else str(error)

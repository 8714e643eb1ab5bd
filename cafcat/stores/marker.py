"""Markers: small objects in a store that name the catalogs which write there.

Each of these catalogs has one object in the store, `catalogs/<uuid of the catalog>.json`. A catalog that joins the
store writes its own object, and replaces none, also if another catalog joins at the same time. One read shows
whether a catalog belongs to the store. docs/formats/marker.md describes the format.
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
"""Size of every marker object in bytes. It is constant, so that one read suffices."""

_MAX_HOST_CHARACTERS: Final = 100
_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_KEY: Final = re.compile(re.escape(MARKER_PREFIX) + rf"({_UUID})\.json", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


class Marker(NamedTuple):
    """Content of a marker: one catalog that writes into a store.

    Attributes:
        store: Identity of the store, the same in all markers of the store.
        catalog: Identity of the catalog.
        since: When the marker was written, ISO 8601 in UTC.
        has_unnamed: True if the objects of the store that name no catalog belong to this catalog. Earlier versions
            of cafcat wrote such objects.
        host: The machine that wrote the marker. It only helps people to find the catalog.
        database: URL of the database at that time, without user and password, or of the home of an embedded
            database. It only helps people, too.
    """

    store: UUID
    catalog: UUID
    since: str
    has_unnamed: bool
    host: str
    database: str


def marker_key(catalog: UUID) -> str:
    """Return the key of a catalog's marker, which is the same in every store."""
    return f"{MARKER_PREFIX}{catalog}.json"


def encode_marker(marker: Marker) -> bytes:
    """Return the MARKER_BYTES bytes of a marker object. A long host name or database URL is cut."""
    document: dict[str, Any] = {"cafcat_catalog": VERSION} | marker._asdict()
    document |= {"store": str(marker.store), "catalog": str(marker.catalog)}
    document["host"] = marker.host[:_MAX_HOST_CHARACTERS]
    while len(line := _line(document)) >= MARKER_BYTES:
        document["database"] = document["database"][: len(document["database"]) * 3 // 4]
    return line.ljust(MARKER_BYTES - 1) + b"\n"


def catalogs_of(store: Store) -> list[UUID]:
    """Return the catalogs that have a marker in a store, in the order of the listing. No marker is read.

    Raises:
        NotFound: There is no such bucket. A missing folder has no markers.
        StoreFailed, AccessDenied: The store does not answer, or refuses the request.
    """
    keys = (_KEY.fullmatch(found.key) for found in store.list(MARKER_PREFIX))
    return [UUID(key[1]) for key in keys if key is not None]


def read_marker(store: Store, catalog: UUID) -> Marker | None:
    """Return a catalog's marker, or None if it, the folder or the bucket is missing. This sends one request.

    Raises:
        Corrupt: The marker is damaged, or is that of another catalog.
        Unsupported: A later version wrote the marker.
        StoreFailed, AccessDenied: The store does not answer, or refuses the request.
    """
    key = marker_key(catalog)
    try:
        return _decoded(store.read(key, 0, MARKER_BYTES), catalog)
    except NotFound:
        return None
    except (Corrupt, ValueError) as error:
        hint = "remove this object and run the command again: the catalog then writes a new marker"
        message = f"the marker of this catalog is damaged: {_reason(error)}"
        raise Corrupt(message, chunk=store.locate(key), hint=hint) from error


def read_markers(store: Store) -> list[tuple[UUID, Marker | None]]:
    """Return every catalog that has a marker in a store, with the marker.

    The marker is None if it is damaged, has a later version, or was just removed. This lists the markers, and sends
    one request for each.

    Raises:
        NotFound: There is no such bucket.
        StoreFailed, AccessDenied: The store does not answer, or refuses the request.
    """
    return [(catalog, _readable(store, catalog)) for catalog in catalogs_of(store)]


def write_marker(store: Store, marker: Marker) -> None:
    """Write a catalog's marker durably. An existing marker stays as it is.

    The caller must hold a lock that excludes other processes of the same catalog.

    Raises:
        NotFound: There is no such bucket.
        StoreFailed, AccessDenied: The store does not answer, or refuses the request.
    """
    put_once(store, marker_key(marker.catalog), lambda: [encode_marker(marker)])


def remove_marker(store: Store, catalog: UUID) -> None:
    """Remove a catalog's marker, and unfinished uploads of this marker. A missing marker is not an error.

    Raises:
        NotFound: There is no such bucket.
        StoreFailed, AccessDenied: The store does not answer, or refuses the request.
    """
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
    """Return the marker in the bytes of an object.

    Raises:
        ValueError: The marker is damaged, or is that of another catalog.
        Unsupported: A later version of cafcat wrote the marker.
    """
    try:
        document = json.loads(content.decode())
    except RecursionError as error:
        raise ValueError("it is not JSON") from error
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    version = document.get("cafcat_catalog")
    if type(version) is int and version > VERSION:
        raise Unsupported(f"the marker has version {version}, and this cafcat reads only version {VERSION}")
    if version != VERSION or document.get("catalog") != str(catalog):
        raise ValueError("it is not the marker of this catalog")
    has_unnamed = document.get("has_unnamed")
    if not isinstance(has_unnamed, bool):
        raise ValueError("has_unnamed is neither true nor false")
    store, since = UUID(_text(document, "store")), _text(document, "since")
    if not _TIME.fullmatch(since):
        raise ValueError("since is not a time")
    datetime.fromisoformat(since)  # refuses February 30
    return Marker(store, catalog, since, has_unnamed, _text(document, "host"), _text(document, "database"))


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a text")
    return value


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, Corrupt) else str(error)

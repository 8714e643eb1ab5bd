"""The marker of a store: one object for each catalog, written once, read with one request, and validated."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from cafcat.errors import Corrupt, Unsupported
from cafcat.stores.local.store import LocalStore
from cafcat.stores.marker import (
    MARKER_BYTES,
    Marker,
    catalogs_of,
    encode_marker,
    marker_key,
    read_marker,
    read_markers,
    remove_marker,
    write_marker,
)

CATALOG, STORE = UUID("5d0c8a52-7f4e-4c5f-9d1c-2f8f4a6b9e01"), UUID("b7b7c5f0-0c63-4a39-8b41-6d5c1f0e2a77")
MARKER = Marker(
    store=STORE,
    catalog=CATALOG,
    since="2026-11-21T10:00:00.000000Z",
    has_unnamed=True,
    host="archive1",
    database="postgresql://db.example:5432/cafcat",
)
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "marker.md"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def put(store: LocalStore, content: bytes, catalog: UUID = CATALOG) -> None:
    path = Path(store.locate(marker_key(catalog)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_documented_example_equals_the_written_marker(store: LocalStore) -> None:
    page = PAGE.read_text()
    assert f"`{marker_key(CATALOG)}`" in page
    line = page.split("```\n")[1].rstrip("\n")
    assert encode_marker(MARKER) == line.encode() + b" " * 783 + b"\n"
    put(store, encode_marker(MARKER))
    assert read_marker(store, CATALOG) == MARKER
    assert all(f"| `{name}` |" in page for name in ("cafcat_catalog", *Marker._fields))


def test_markers_of_several_catalogs_lie_beside_each_other(store: LocalStore) -> None:
    assert (read_marker(store, CATALOG), catalogs_of(store)) == (None, [])
    other = MARKER._replace(catalog=uuid4(), has_unnamed=False)
    write_marker(store, MARKER)
    write_marker(store, other)
    assert read_marker(store, other.catalog) == other
    assert sorted(read_markers(store)) == sorted([(CATALOG, MARKER), (other.catalog, other)])
    remove_marker(store, CATALOG)
    remove_marker(store, CATALOG)
    assert catalogs_of(store) == [other.catalog]


def test_a_marker_is_never_replaced(store: LocalStore) -> None:
    write_marker(store, MARKER)
    write_marker(store, MARKER._replace(host="elsewhere"))
    assert read_marker(store, CATALOG) == MARKER


def test_upload_of_a_dead_writer_does_not_prevent_a_marker(store: LocalStore) -> None:
    store.create(marker_key(CATALOG)).write(b"half")
    write_marker(store, MARKER)
    assert read_marker(store, CATALOG) == MARKER
    assert list(store.uploads()) == []


@pytest.mark.parametrize("long", ["x" * 5000, "ü" * 5000, "\x01" * 5000, "\udcff" * 5000, '"\\' * 3000])
def test_names_that_are_too_long_are_cut(store: LocalStore, long: str) -> None:
    content = encode_marker(MARKER._replace(host=long, database=long))
    assert len(content) == MARKER_BYTES
    put(store, content)
    found = read_marker(store, CATALOG)
    assert found is not None
    assert (found.store, found.catalog, len(found.host) > 10) == (STORE, CATALOG, True)


def test_other_objects_are_no_markers(store: LocalStore) -> None:
    for key in ("catalogs/readme.json", f"catalogs/{CATALOG}.txt", f"catalogs/below/{CATALOG}.json"):
        upload = store.create(key)
        upload.write(b"x")
        upload.commit()
    assert catalogs_of(store) == []


DOCUMENT = encode_marker(MARKER)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        DOCUMENT[:-1],
        b" " * MARKER_BYTES,
        b"[".ljust(MARKER_BYTES, b"["),
        b"[]".ljust(MARKER_BYTES),
        b"\xff".ljust(MARKER_BYTES),
        DOCUMENT.replace(str(CATALOG).encode(), str(STORE).encode()),
        DOCUMENT.replace(b'"store":"b', b'"store":"x'),
        DOCUMENT.replace(b"has_unnamed", b"HAS_UNNAMED"),
        DOCUMENT.replace(b":true", b":1   "),
        DOCUMENT.replace(b"11-21T", b"02-30T"),
        DOCUMENT.replace(b'"archive1"', b"12345     "),
        DOCUMENT.replace(b'log":1', b'log":0'),
    ],
)
def test_damage_is_reported_with_a_remedy(store: LocalStore, content: bytes) -> None:
    put(store, content)
    with pytest.raises(Corrupt, match="the marker of this catalog is damaged") as caught:
        read_marker(store, CATALOG)
    assert caught.value.chunk == store.locate(marker_key(CATALOG))
    assert "remove this object" in (caught.value.hint or "")
    assert read_markers(store) == [(CATALOG, None)]


def test_a_later_version_is_refused(store: LocalStore) -> None:
    put(store, DOCUMENT.replace(b'log":1', b'log":2'))
    with pytest.raises(Unsupported, match="has version 2, and this cafcat reads only version 1"):
        read_marker(store, CATALOG)

"""URLs and paths of stores."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cafcat.errors import InvalidInput, Unsupported
from cafcat.stores.local.store import LocalStore
from cafcat.stores.registry import open_store


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("/srv/chunks", "file:///srv/chunks"),
        ("file:///srv/chunks", "file:///srv/chunks"),
        ("file://localhost/srv/chunks", "file:///srv/chunks"),
        ("file:/srv/chunks/", "file:///srv/chunks"),
        ("FILE:///srv", "file:///srv"),
        ("file:///with%20space/%C3%BC/100%25", "file:///with%20space/%C3%BC/100%25"),
        ("/with space/ü/100%", "file:///with%20space/%C3%BC/100%25"),
        ("/a?b#c", "file:///a%3Fb%23c"),
        ("/a:/b", "file:///a%3A/b"),
        ("/", "file:///"),
    ],
)
def test_paths_and_file_urls_are_local_stores(text: str, url: str) -> None:
    store = open_store(text)
    assert isinstance(store, LocalStore)
    assert store.url == url


def test_relative_paths_begin_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("chunks")
    monkeypatch.chdir("/")
    assert store.locate("c.caf") == f"{tmp_path}/chunks/c.caf"
    assert open_store("x:y").locate("c.caf") == "/x:y/c.caf"


@given(st.binary(min_size=1, max_size=20).filter(lambda name: b"\0" not in name))
def test_every_path_is_recovered_from_its_url(name: bytes) -> None:
    folder = Path("/top") / os.fsdecode(name).lstrip("/")
    url = LocalStore(folder).url
    assert url.isascii()
    assert open_store(url).locate("key") == LocalStore(folder).locate("key")
    assert open_store(url).url == url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket/a/prefix/", "s3://bucket/a/prefix"),
        ("s3://bucket/with space/ü", "s3://bucket/with space/ü"),
    ],
)
def test_buckets_are_s3_stores(text: str, url: str) -> None:
    store = open_store(text)
    assert store.url == url
    assert open_store(url).url == url
    assert store.locate("c.caf") == f"{url}/c.caf"


@pytest.mark.parametrize(
    "text", ["s3://", "s3://a", "s3:///x", "s3://bucket/a//b", "s3://bucket/../x", "s3://k:s@bucket"]
)
def test_invalid_buckets_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        open_store(text)


@pytest.mark.parametrize("url", ["https://host/chunks", "gcs://bucket", "abfs://container"])
def test_other_schemes_are_named(url: str) -> None:
    with pytest.raises(Unsupported, match=url.partition(":")[0]):
        open_store(url)


@pytest.mark.parametrize("text", ["", "a\0b", "file://chunks/here", "file:///a?b", "file:///a#b", "file:///a%00"])
def test_invalid_stores_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        open_store(text)


def test_stores_are_imported_on_demand() -> None:
    for module in ("cafcat.stores.local.store", "cafcat.stores.s3.store", "boto3", "obstore"):
        script = f"import sys, cafcat.stores.registry; sys.exit({module!r} in sys.modules)"
        subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    "script",
    [
        "from cafcat.stores.registry import open_store; open_store('/srv'); open_store('s3://bucket')",
        "from cafcat.sources.registry import find_kind; find_kind('s3'); find_kind('https')",
    ],
)
def test_entry_points_are_not_searched_for_built_in_kinds(script: str) -> None:
    script = f"import sys; {script}; sys.exit('importlib.metadata' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)

"""URLs of clusters."""

import pytest

from cafcat.clusters import open_cluster
from cafcat.clusters.opening import _parts
from cafcat.errors import InvalidInput


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("local", ("local", "", 0)),
        ("local://", ("local", "", 0)),
        ("local://3", ("local", "", 3)),
        ("dask://head:1", ("dask", "head", 1)),
        ("dask://head", ("dask", "head", 8786)),
        ("ray://10.0.0.1", ("ray", "10.0.0.1", 10001)),
        ("ray://[::1]:7", ("ray", "::1", 7)),
    ],
)
def test_a_url_names_engine_host_and_port(url: str, parts: tuple[str, str, int]) -> None:
    assert _parts(url) == parts


@pytest.mark.parametrize(
    "url",
    [
        *("", "dask", "dask://", "spark://h:1", "local://0", "local://-1", "local://x", "local://2:3"),
        *("dask://h:x", "dask://h:99999", "dask://user@h:1", "ray://h:1/path", "ray://h?x=1", "dask://[::1"),
    ],
)
def test_other_urls_are_refused_with_a_hint(url: str) -> None:
    with pytest.raises(InvalidInput, match="dask://HOST:8786"), open_cluster(url):
        pass

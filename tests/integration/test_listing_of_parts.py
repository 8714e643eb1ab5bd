"""Requests with which a part of a bucket is listed."""

import pytest

from cafcat.remote.access import S3Access
from cafcat.remote.connection import S3Connection
from cafcat.sources.parts import Part
from cafcat.sources.s3 import bucket
from cafcat.sources.s3.bucket import S3Source
from tests.worlds.servers.s3_proxy import S3Proxy
from tests.worlds.servers.s3_server import S3Server


@pytest.mark.usefixtures("s3_proxy_environment")
@pytest.mark.parametrize(("through", "pages"), [("c", 1), ("d", 2), (None, 3)])
def test_no_page_behind_a_part_is_requested(
    through: str | None,
    pages: int,
    s3_server: S3Server,
    s3_bucket: str,
    s3_proxy: S3Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pages are a to d, e to h, and i. A page that ends exactly with the part does not show that it is the last."""
    client = s3_server.client()
    for key in "abcdefghi":
        client.put_object(Bucket=s3_bucket, Key=key, Body=b"")
    monkeypatch.setattr(bucket, "PAGE_KEYS", 4)
    part = Part(None, through)
    source = S3Source(f"s3://{s3_bucket}", S3Connection(s3_bucket, S3Access()), part=part)
    s3_proxy.clear()
    assert [file.path for file in source.files()] == [key for key in "abcdefghi" if part.contains(key)]
    assert s3_proxy.count("ListObjectsV2") == pages

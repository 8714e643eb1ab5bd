"""The S3 source passes the suite of cafcat.testing.sources, on a real server."""

from collections.abc import Callable

import pytest

from cafcat.errors import SourceFailed
from cafcat.remote.access import S3Access
from cafcat.remote.connection import S3Connection
from cafcat.sources.base import Source
from cafcat.sources.s3.bucket import S3Source
from cafcat.testing.sources import RawFiles, SourceSuite, found
from tests.worlds.servers.s3_server import S3Server, needs, parameters

ODD_NAMES = {"a\\b": "backslashes", "new\nline": "newlines", "\x01": "control_characters"}
"""Names of the suite that some servers do not keep, and the feature that they lack."""


class BucketBeside:
    def __init__(self, server: S3Server, bucket: str) -> None:
        self.client = server.client()
        self.bucket = bucket

    def write(self, path: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=path, Body=data)

    def remove(self, path: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=path)


@pytest.mark.usefixtures("s3_environment")
class TestS3Source(SourceSuite):
    @pytest.fixture(autouse=True)
    def _server(self, s3_server: S3Server, request: pytest.FixtureRequest) -> None:
        if feature := ODD_NAMES.get(parameters(request).get("path", "")):
            needs(s3_server, feature)
        self.ordered = s3_server.has("list_order")

    @pytest.fixture
    def raw(self, s3_server: S3Server, s3_bucket: str) -> BucketBeside:
        return BucketBeside(s3_server, s3_bucket)

    @pytest.fixture
    def open_source(self, s3_bucket: str) -> Callable[[], Source]:
        return lambda: S3Source(f"s3://{s3_bucket}", S3Connection(s3_bucket, S3Access()))

    def test_a_file_that_changed_since_it_was_listed_is_taken_as_it_is_now(
        self, open_source: Callable[[], Source], raw: RawFiles
    ) -> None:
        """Unlike a file on disk, the changed object is refused: its entity tag is not the listed one."""
        raw.write("file", b"old")
        source = open_source()
        listed = found(source)["file"]
        raw.write("file", b"new and longer")
        with pytest.raises(SourceFailed) as caught:
            source.open(listed)
        assert caught.value.problem == "changed"

    def test_names_that_the_catalog_cannot_take_are_problems(
        self, open_source: Callable[[], Source], raw: RawFiles
    ) -> None:
        """A key has at most 1,024 bytes.

        Only a prefix makes the path too long: see integration/test_s3_source.py.
        """

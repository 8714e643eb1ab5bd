"""A list of URLs passes the suite of cafcat.testing.sources: with objects of a real S3 server, and with files of a
web server."""

import os
from collections.abc import Callable, Iterator
from io import BytesIO

import pytest

from cafcat.errors import SourceFailed
from cafcat.model import FileProblem, SourceFile
from cafcat.sources.base import OpenFile, Source
from cafcat.sources.lists.name_list import NameListSource
from cafcat.testing.sources import RawFiles, SourceSuite, found
from tests.worlds.servers.s3_server import S3Server
from tests.worlds.servers.web_server import WebServer, web_server

__all__ = ["web_server"]


class Urls(SourceSuite):
    """Tests of the suite that differ for URLs."""

    ordered = False

    def test_a_file_that_changed_since_it_was_listed_is_taken_as_it_is_now(
        self, open_source: Callable[[], Source], raw: RawFiles
    ) -> None:
        """The changed file is refused: its entity tag is not the listed one."""
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
        """A key has at most 1,024 bytes, and a host comes before the path: see unit/test_url_source.py."""


class BucketBeside:
    def __init__(self, server: S3Server, bucket: str) -> None:
        self.client = server.client()
        self.bucket = bucket
        self.keys: set[str] = set()

    def write(self, path: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=path, Body=data)
        self.keys.add(path)

    def remove(self, path: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=path)
        self.keys.remove(path)

    def urls(self) -> list[str]:
        return [f"s3://{self.bucket}/{key}" for key in self.keys]


@pytest.mark.usefixtures("s3_environment")
class TestS3Urls(Urls):
    @pytest.fixture
    def raw(self, s3_server: S3Server, s3_bucket: str) -> Iterator[BucketBeside]:
        raw = BucketBeside(s3_server, s3_bucket)
        yield raw
        raw.client.close()

    @pytest.fixture
    def open_source(self, raw: BucketBeside) -> Callable[[], Source]:
        return lambda: listing(raw.urls())


class TestWebUrls(Urls):
    @pytest.fixture
    def raw(self, web_server: WebServer) -> WebServer:
        return web_server

    @pytest.fixture
    def open_source(self, web_server: WebServer) -> Callable[[], Source]:
        return lambda: WithoutHost(listing([web_server.url(path) for path in web_server.files]))


def listing(urls: list[str]) -> NameListSource:
    return NameListSource(BytesIO(b"\0".join(map(os.fsencode, urls))), null_separated=True)


class WithoutHost:
    """The suite's files are at the top: this removes the host from their names, and puts it back."""

    def __init__(self, source: NameListSource) -> None:
        self.source = source
        self.name = source.name

    def files(self) -> Iterator[SourceFile | FileProblem]:
        for item in self.source.files():
            host, _, path = item.path.partition("/")
            assert host == "127.0.0.1"
            yield item._replace(path=path)

    def open(self, file: SourceFile) -> OpenFile:
        return self.source.open(file)

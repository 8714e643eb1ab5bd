"""The stores and sources of Google Cloud Storage and Azure pass the suites of cafcat.testing, on emulators."""

from collections.abc import Callable

import pytest

from cafcat.errors import SourceFailed
from cafcat.sources.base import Source
from cafcat.sources.clouds.kind import CLOUD
from cafcat.sources.kind import SourceContext
from cafcat.stores.base import Store
from cafcat.stores.kind import StoreContext
from cafcat.stores.registry import open_store
from cafcat.testing.sources import RawFiles, SourceSuite, found
from cafcat.testing.stores import StoreSuite
from tests.worlds.servers.clouds import Bucket, Cloud
from tests.worlds.servers.s3_server import parameters

PREFIX = "some folder/chünks/"


ODD_NAMES = {
    "a\\b": "Azurite lists a backslash as a slash",
    "\x01": "Azurite cannot list control characters that XML does not have: it answers 500",
}


class TestCloudStore(StoreSuite):
    @pytest.fixture(autouse=True)
    def _server(self, cloud: Cloud) -> None:
        # fake-gcs-server ignores the condition of a resumable upload. Google documents it.
        self.never_replaces = cloud.scheme != "gs"

    @pytest.fixture
    def store(self, cloud_bucket: Bucket) -> Store:
        return open_store(f"{cloud_bucket.url}/{PREFIX}", StoreContext(upload_memory=60_000_000))

    @pytest.fixture
    def raw(self, cloud_bucket: Bucket) -> Bucket:
        return cloud_bucket.below(PREFIX)


class TestCloudSource(SourceSuite):
    @pytest.fixture(autouse=True)
    def _server(self, cloud: Cloud, request: pytest.FixtureRequest) -> None:
        if cloud.scheme == "az" and (reason := ODD_NAMES.get(parameters(request).get("path", ""))):
            pytest.skip(reason)

    @pytest.fixture
    def raw(self, cloud_bucket: Bucket) -> Bucket:
        return cloud_bucket

    @pytest.fixture
    def open_source(self, cloud_bucket: Bucket) -> Callable[[], Source]:
        return lambda: CLOUD.open(cloud_bucket.url, SourceContext())

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
        """A key has at most 1,024 bytes or characters, so that only a prefix makes the path too long."""

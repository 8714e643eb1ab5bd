"""Small files that a mount reads in order from a bucket: few requests, and always the right bytes."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import Corrupt
from cafcat.model import Location
from cafcat.mount import reading_ahead
from cafcat.mount.open_files import OpenFiles
from cafcat.mount.reading_ahead import KnownEnds
from cafcat.progress import Warnings
from cafcat.reading.reader import FileReader
from cafcat.stores.s3.store import S3Store
from tests.worlds.servers.s3_proxy import S3Proxy

CONTENT = random.Random(3)
FILES = {f"files/{number:04}": CONTENT.randbytes(CONTENT.randrange(1, 8000)) for number in range(600)}


class Read:
    """The files of a bucket, as a mount reads them.

    Attributes:
        ranges: First byte and end of each request.
        locations: The files in the order of their paths.
        ends: What is known about the length of objects.
    """

    def __init__(self, repository: cafcat.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ranges: list[tuple[int, int]] = []
        read, ranges = S3Store.read, self.ranges

        def recorded(store: S3Store, key: str, start_byte: int, end_byte: int) -> bytes:
            ranges.append((start_byte, end_byte))
            return read(store, key, start_byte, end_byte)

        monkeypatch.setattr(S3Store, "read", recorded)
        session = repository.session
        self.locations = session.catalog.files.page("files/")
        self.ends = KnownEnds()
        self.ends.add(self.locations)
        reader = FileReader(session.catalog, session.stores, Warnings(lambda _: None))
        self._files = OpenFiles(reader, self.ends)

    def file(self, location: Location) -> bytes:
        handle = self._files.open(location)
        try:
            return self._files.read(handle, 0, 1 << 20)
        finally:
            self._files.close(handle)


@pytest.fixture
def read(
    database_url: str,
    tmp_path: Path,
    s3_bucket: str,
    s3_proxy: S3Proxy,
    s3_proxy_environment: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Read]:
    store = f"s3://{s3_bucket}/chunks"
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=store) as repository:
        with repository.writer() as writer:
            for path, content in FILES.items():
                writer.add(path, content)
        yield Read(repository, monkeypatch)


def test_files_in_order_need_few_requests(read: Read) -> None:
    for location in read.locations:
        assert read.file(location) == FILES[location.path]
    assert len(read.ranges) <= 6
    assert max(end for _, end in read.ranges) == read.locations[-1].end_byte, "nothing beyond the last file"


def test_files_in_order_by_several_threads(read: Read) -> None:
    with ThreadPoolExecutor(8) as pool:
        contents = list(pool.map(read.file, read.locations))
    assert contents == [FILES[location.path] for location in read.locations]
    assert len(read.ranges) < 100


def test_random_files_are_read_alone(read: Read) -> None:
    for location in read.locations[::-20]:
        assert read.file(location) == FILES[location.path]
    assert sorted(read.ranges) == [(row.start_byte, row.end_byte) for row in read.locations[19::20]]


def test_a_wrong_location_gives_no_bytes_of_other_files(read: Read) -> None:
    for location in read.locations[:10]:
        read.file(location)
    damaged = read.locations[10]._replace(start_byte=read.locations[10].start_byte + 1)
    with pytest.raises(Corrupt):
        read.file(damaged)
    assert read.file(read.locations[10]) == FILES["files/0010"]


def test_files_are_read_alone_after_a_range_failed(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_ahead, "_FIRST_WINDOW", 20_000)
    lost = [location._replace(object_key=f"{location.object_key}-lost") for location in read.locations[:30]]
    read.ends.add(lost)
    for location in lost:  # the catalog has the right object
        assert read.file(location) == FILES[location.path]
    alone = {(location.start_byte, location.end_byte) for location in lost}
    assert len(set(read.ranges) - alone) == 1

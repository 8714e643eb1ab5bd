"""A third-party store and a third-party source pass the suites that cafcat ships for them."""

import gzip
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cafcat.sources.base import Source
from cafcat.sources.kind import SourceContext
from cafcat.sources.registry import find_kind
from cafcat.stores.base import Store
from cafcat.stores.registry import open_store
from cafcat.testing.sources import SourceSuite
from cafcat.testing.stores import StoreSuite
from tests.third_party import package

__all__ = ["package"]


class GzipFiles:
    """The files of a file+gz:// store, accessed without the store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, key: str, data: bytes) -> None:
        path = self.folder / f"{key}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data))

    def read(self, key: str) -> bytes | None:
        path = self.folder / f"{key}.gz"
        return gzip.decompress(path.read_bytes()) if path.exists() else None


@pytest.mark.usefixtures("package")
class TestGzipStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path, package: Path) -> Store:
        return open_store(f"file+gz://{tmp_path}/chunks")

    @pytest.fixture
    def raw(self, tmp_path: Path) -> GzipFiles:
        return GzipFiles(tmp_path / "chunks")


class ZipFiles:
    """A zip archive that is written again after each change."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self.members: dict[str, bytes] = {}

    def write(self, path: str, data: bytes) -> None:
        self.members[path] = data
        self._replace()

    def remove(self, path: str) -> None:
        del self.members[path]
        self._replace()

    def _replace(self) -> None:
        new = self.archive.with_suffix(".new")
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for path, data in self.members.items():
                archive.writestr(zipfile.ZipInfo(path, (2026, 1, 2, 3, 4, 6)), data)
        os.replace(new, self.archive)


@pytest.mark.usefixtures("package")
class TestZipSource(SourceSuite):
    @pytest.fixture
    def raw(self, tmp_path: Path) -> ZipFiles:
        return ZipFiles(tmp_path / "files.zip")

    @pytest.fixture
    def open_source(self, raw: ZipFiles) -> Callable[[], Source]:
        kind = find_kind("zip")
        assert kind is not None
        return lambda: kind.open(f"zip://{raw.archive}", SourceContext())

"""The sources that cafcat ships pass the suite of cafcat.testing.sources."""

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from cafcat.sources.base import Source
from cafcat.sources.lists.name_list import NameListSource
from cafcat.sources.local.directory import DirectorySource
from cafcat.testing.sources import SourceSuite


class FolderBeside:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, path: str, data: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def remove(self, path: str) -> None:
        (self.folder / path).unlink()

    def paths(self) -> list[str]:
        """Return the paths in the order of the folder, which is arbitrary."""
        paths = (file.relative_to(self.folder) for file in self.folder.rglob("*") if file.is_file())
        return [str(path) for path in paths]


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderBeside:
    monkeypatch.chdir(tmp_path)
    return FolderBeside(tmp_path)


class TestDirectorySource(SourceSuite):
    @pytest.fixture
    def raw(self, raw: FolderBeside) -> FolderBeside:
        return raw

    @pytest.fixture
    def open_source(self) -> Callable[[], Source]:
        return lambda: DirectorySource(".")


class TestListingSource(SourceSuite):
    ordered = False

    @pytest.fixture
    def raw(self, raw: FolderBeside) -> FolderBeside:
        return raw

    @pytest.fixture
    def open_source(self, raw: FolderBeside) -> Callable[[], Source]:
        def open_listing() -> Source:
            names = b"".join(os.fsencode(path) + b"\0" for path in raw.paths())
            return NameListSource(BytesIO(names), null_separated=True)

        return open_listing

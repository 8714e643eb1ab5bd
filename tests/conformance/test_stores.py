"""The stores that cafcat ships pass the suite of cafcat.testing.stores."""

from pathlib import Path

import pytest

from cafcat.stores.local.store import LocalStore
from cafcat.testing.stores import StoreSuite


class FolderBeside:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, key: str, data: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def read(self, key: str) -> bytes | None:
        path = self.folder / key
        return path.read_bytes() if path.exists() else None


class TestLocalStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalStore:
        return LocalStore(tmp_path / "chunks")

    @pytest.fixture
    def raw(self, tmp_path: Path) -> FolderBeside:
        return FolderBeside(tmp_path / "chunks")

"""fsspec's own abstract test suites, over a catalog.

These classes of `fsspec.tests.abstract` apply:

* AbstractGetTests: copies files and folders out of the catalog.
* AbstractOpenTests and AbstractPipeTests: write a file, and refuse to write it again in the mode for new files.
* AbstractPutTests: copies files and folders into the catalog. Its tests remove files with `fs.rm`, so all classes
  run with a file system whose `rm` is that of the repository.

These do not:

* AbstractCopyTests: a catalog does not copy files within itself; `cp` raises NotImplementedError.
* mv.py: a function for local files and the memory file system, no class.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.tests import abstract

import cafcat
from cafcat.filesystem import CafcatFileSystem

pytestmark = pytest.mark.slow


class RemovingFileSystem(CafcatFileSystem):
    """A file system whose `rm` removes files from the catalog: the suites remove what they wrote."""

    async def _rm(self, path: Any, recursive: bool = False, **kwargs: Any) -> None:  # type: ignore[override]
        names = self._strip_protocol([path] if isinstance(path, str) else path)
        await self._in_thread(lambda: self._packed.rm(folders=names))


class CatalogFixtures(abstract.AbstractFixtures):
    """Fixtures that all classes need: a file system over a new catalog."""

    @pytest.fixture
    def fs(self, local: cafcat.Repository) -> Iterator[CafcatFileSystem]:
        settings = local.settings
        fs = RemovingFileSystem(home=str(settings.home), database_url=settings.database_url, store=settings.store)
        yield fs
        fs._packed.close()
        RemovingFileSystem.clear_instance_cache()

    @pytest.fixture
    def fs_path(self) -> str:
        return "suite"

    @pytest.fixture
    def local_path(self, tmp_path: Path) -> str:
        return str(tmp_path)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestGet(CatalogFixtures, abstract.AbstractGetTests):
    pass


class TestPut(CatalogFixtures, abstract.AbstractPutTests):
    pass


class TestOpen(CatalogFixtures, abstract.AbstractOpenTests):
    pass


class TestPipe(CatalogFixtures, abstract.AbstractPipeTests):
    pass

"""python -m tests.bench.synthetic FILES: an ingest of this number of files, whose contents are generated.

Packing, commits and queries are those of a real ingest, into the repository at CAFCAT_HOME. Prints the peak memory
in bytes, as the kernel measures it.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final

from cafcat.catalog.chunks.owners import owner_name
from cafcat.formats import registry as formats
from cafcat.model import NewFile, SourceFile
from cafcat.operations.ingest.coordinator import Ingest
from cafcat.progress import Progress
from cafcat.scanning.opening import SourceOptions
from cafcat.session import SessionFactory
from cafcat.settings.settings import Settings
from cafcat.sources.base import OpenFile
from cafcat.writing.chunk import ChunkTarget
from cafcat.writing.limits import Limits
from tests.bench.memory import peak_bytes

FOLDER_FILES: Final = 500
_CONTENT: Final = bytes(100)
_MODIFIED_NS: Final = 1_700_000_000_000_000_000


class Synthetic:
    """A source of files of 100 bytes in folders of 500, with paths of 40 characters."""

    name = "synthetic"

    def __init__(self, count: int) -> None:
        self._count = count

    def files(self) -> Iterator[SourceFile]:
        for number in range(self._count):
            path = f"synthetic/{number // FOLDER_FILES:010}/{number:010}.dat"
            yield SourceFile(path, len(_CONTENT), _MODIFIED_NS + number, path)

    def open(self, file: SourceFile) -> OpenFile:
        raise NotImplementedError(file.path)

    def read_each(self, files: Iterable[SourceFile]) -> Iterator[NewFile]:
        for file in files:
            yield NewFile(file.path, _CONTENT, file.modified_ns)


def main(count: int) -> None:
    settings = Settings.load()
    with closing(SessionFactory(settings)(Progress())) as session:
        store = session.stores[settings.store]
        session.catalog.stores.register(store.url)
        target = ChunkTarget(session.catalog, store, formats.by_name("caf"), None, owner_name("bench"))
        limits = Limits(settings.target_size)
        ingest = Ingest(session, target, limits, SourceOptions())
        ingest.run([Synthetic(count)])
        assert ingest.report.files_added == count
    print(peak_bytes(os.getpid()))


if __name__ == "__main__":
    main(int(sys.argv[1]))

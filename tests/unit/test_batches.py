"""Batches of a source's files."""

import time
from collections.abc import Iterator

from cafcat.errors import SourceFailed
from cafcat.model import SourceFile
from cafcat.scanning.batches import BATCH_FILES, batches_of
from cafcat.sources.base import OpenFile


class Listing:
    """A source that waits before one of its files."""

    name = "listing"

    def __init__(self, count: int, *, waits_before: int | None = None) -> None:
        self._count = count
        self._waits_before = waits_before

    def files(self) -> Iterator[SourceFile]:
        for number in range(self._count):
            if number == self._waits_before:
                time.sleep(2.1)
            yield SourceFile(f"{number:05}", 0, 0, "")

    def root_of(self, file: SourceFile) -> str:
        return file.path

    def open(self, file: SourceFile) -> OpenFile:
        raise SourceFailed("no file can be opened", path=file.path)


def test_a_batch_has_at_most_5000_files() -> None:
    assert [len(batch) for batch in batches_of(Listing(BATCH_FILES + 1))] == [BATCH_FILES, 1]


def test_a_slow_source_ends_a_batch_after_two_seconds() -> None:
    """Otherwise Ctrl-C in a list of slow URLs would wait for 5,000 of them."""
    assert [len(batch) for batch in batches_of(Listing(10, waits_before=3))] == [4, 6]

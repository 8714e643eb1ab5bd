"""Whole trees back to disk: pages of locations, sorted by chunk and offset, near ones read together."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from cafcat.checksums import crc32c
from cafcat.errors import CafcatError, Conflict, Corrupt, InvalidInput, NotFound, StoreFailed
from cafcat.model import ExtractReport, FileProblem, Location, ProblemKind
from cafcat.progress import Progress
from cafcat.resolve.outputs import OutputTree
from cafcat.resolve.reading import Reading, check
from cafcat.stores.base import Store

__all__ = ["Extract", "merged"]

_GAP_BYTES: Final = 64 << 10
"""Reading over a gap of this size is cheaper than another request."""
_READ_BYTES: Final = 8 << 20
"""No merged read is larger; a file that is larger is read alone, in blocks."""
_KEPT_FAILURES: Final = 1000
_KINDS: Final = {
    "corrupt": ProblemKind.CORRUPT,
    "conflict": ProblemKind.EXISTS,
    "store_failed": ProblemKind.UNREADABLE,
}


def merged(locations: Iterable[Location]) -> Iterator[list[Location]]:
    """Groups of locations that one range read serves: same object, near each other, at most 8 MiB from the
    first byte to the last unless it is a single file."""
    ordered = sorted(locations, key=lambda place: (place.store, place.object_key, place.start_byte))
    if not ordered:
        return
    group, end = [ordered[0]], ordered[0].end_byte
    for before, place in pairwise(ordered):
        same = (before.store, before.object_key) == (place.store, place.object_key)
        near = place.start_byte - end <= _GAP_BYTES
        if same and near and max(end, place.end_byte) - group[0].start_byte <= _READ_BYTES:
            group.append(place)
            end = max(end, place.end_byte)
        else:
            yield group
            group, end = [place], place.end_byte
    yield group


class Extract:
    """One extraction into a folder. A file that fails costs only itself, and is reported."""

    def __init__(
        self,
        reading: Reading,
        store_of: Callable[[str], Store],
        tree: OutputTree,
        *,
        overwrite: bool,
        progress: Progress,
        should_stop: Callable[[], bool],
    ) -> None:
        self._reading = reading
        self._store_of = store_of
        self._tree = tree
        self._overwrite = overwrite
        self._progress = progress
        self._should_stop = should_stop
        self.report = ExtractReport()

    def take(self, page: Sequence[Location]) -> None:
        """Extracts a page of locations, or until `should_stop` says so."""
        for group in merged(page):
            if self._should_stop():
                self.report.interrupted = True
                return
            if group[0].size_bytes > _READ_BYTES:
                self._write(group[0], self._watched(self._reading.stream(group[0])))
            else:
                self._take_group(group)

    def _watched(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """A large file is finished when `should_stop` says True, and given up only when it raises."""
        for block in blocks:
            self._should_stop()
            yield block

    def _take_group(self, group: Sequence[Location]) -> None:
        first = group[0]
        start, end = first.start_byte, max(place.end_byte for place in group)
        try:
            data = self._store_of(first.store).read(first.object_key, start, end)
        except (Corrupt, NotFound, StoreFailed):
            # Something of the span cannot be read: each file for itself shows which.
            for place in group:
                self._write(place, self._reading.stream(place))
            return
        for place in group:
            self._write(place, _checked(place, data[place.start_byte - start : place.end_byte - start]))

    def _write(self, place: Location, blocks: Iterable[bytes]) -> None:
        try:
            self._tree.write(place.path, blocks, place.modified_ns, overwrite=self._overwrite)
        except (Corrupt, Conflict, InvalidInput, StoreFailed) as error:
            self._failed(place, error)
        else:
            self.report.files += 1
            self.report.bytes += place.size_bytes
            self._progress.advance(1, place.size_bytes)

    def _failed(self, place: Location, error: CafcatError) -> None:
        problem = FileProblem(place.path, _KINDS.get(error.kind, ProblemKind.NAME), error.message)
        self.report.files_failed += 1
        if len(self.report.failed) < _KEPT_FAILURES:
            self.report.failed.append(problem)
        self._progress.problem(problem)


def _checked(place: Location, content: bytes) -> Iterator[bytes]:
    check(place, crc32c(content))
    yield content

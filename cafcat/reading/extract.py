"""Whole trees back to disk: pages of locations, near ones read together."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Final

from cafcat.errors import CafcatError, Conflict, Corrupt, InvalidInput, NotInstalled, StoreFailed, Unsupported
from cafcat.model import ExtractReport, FileProblem, Location, ProblemKind
from cafcat.progress import Progress
from cafcat.reading.fetch import fetch
from cafcat.reading.listing import Listing
from cafcat.reading.outputs import Output, OutputTree
from cafcat.reading.plan import PLANNED_FILES, RangeRead, ReadPlan, in_read_order, merged
from cafcat.reading.reader import Reading
from cafcat.reading.request import ReadRequest

__all__ = ["Extract", "extract_tree", "plan_tree"]

_KEPT_FAILURES: Final = 1000
_SMALL_BYTES: Final = 1 << 20
"""A file up to this size is written too fast to ask in between whether to stop."""
_KINDS: Final = {
    "corrupt": ProblemKind.CORRUPT,
    "conflict": ProblemKind.EXISTS,
    "not_installed": ProblemKind.UNREADABLE,
    "store_failed": ProblemKind.UNREADABLE,
    "unsupported": ProblemKind.UNREADABLE,
}


def extract_tree(
    reading: Reading,
    listing: Listing,
    prefix: str,
    output: Output,
    *,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> ExtractReport:
    """Write everything below a folder of the catalog below a directory: see Repository.extract."""
    files, size_bytes = listing.totals(prefix)
    tree: OutputTree[Location]
    with OutputTree(output) as tree:
        extract = Extract(reading, tree, progress=progress, should_stop=should_stop)
        progress.begin("extract", files=files, size_bytes=size_bytes)
        try:
            for page in listing.pages(prefix, page_rows=PLANNED_FILES):
                extract.take(page)
                if extract.report.interrupted:
                    break
            extract.commit()
        except CafcatError as error:
            extract.give_up(error)
            raise
        finally:
            progress.end()
    return extract.report


def plan_tree(reading: Reading, listing: Listing, prefix: str) -> ReadPlan:
    """What `extract_tree` would read. Nothing is read. Raises NotFound if there is nothing of that name."""
    listing.totals(prefix)
    plan = ReadPlan()
    for page in listing.pages(prefix, page_rows=PLANNED_FILES):
        for read in _reads(reading, page):
            plan.add(read, reading.object_of(read.wanted[0].location))
    return plan


def _reads(reading: Reading, page: Sequence[Location]) -> Iterator[RangeRead]:
    return merged(in_read_order(ReadRequest.of(place.path, place) for place in page), reading.store_of)


class Extract:
    """One extraction into a folder. A file that fails costs only itself, and is reported."""

    def __init__(
        self,
        reading: Reading,
        tree: OutputTree[Location],
        *,
        progress: Progress,
        should_stop: Callable[[], bool],
    ) -> None:
        self._reading = reading
        self._tree = tree
        self._progress = progress
        self._should_stop = should_stop
        self.report = ExtractReport()

    def take(self, page: Sequence[Location]) -> None:
        """Extracts a page of locations, or until `should_stop` says so. Raises AccessDenied, OutputFailed,
        Unavailable if a store is out of reach."""
        with closing(fetch(self._reading, _reads(self._reading, page))) as files:
            for wanted, blocks in files:
                if self._should_stop():
                    self.report.interrupted = True
                    return
                self._write(wanted, blocks)
                if self._tree.has_finished:
                    self._count_finished()

    def commit(self) -> None:
        """Make all files durable under their names. Raises OutputFailed."""
        self._tree.commit()
        self._count_finished()

    def give_up(self, error: CafcatError) -> None:
        """Keep the complete files after an error that ends the extraction, and note their number in the error."""
        with suppress(CafcatError):
            self.commit()
        self._count_finished()
        if error.hint is None and self.report.files:
            error.hint = f"files that were extracted before, and are complete: {self.report.files}"

    def _count_finished(self) -> None:
        for place, error in self._tree.finished():
            if error is None:
                self._count(place)
            else:
                self._failed(place, error)

    def _count(self, place: Location) -> None:
        self.report.files += 1
        self.report.bytes += place.size_bytes
        self._progress.advance(1, place.size_bytes)

    def _watched(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """A large file is finished when `should_stop` says True, and given up only when it raises."""
        for block in blocks:
            self._should_stop()
            yield block

    def _write(self, wanted: ReadRequest, blocks: Iterator[bytes]) -> None:
        place = wanted.location
        try:
            if place.path.endswith("/") and not place.size_bytes:
                self._tree.make_folder(place.path[:-1])  # how S3's consoles keep an empty folder
                self._count(place)
            else:
                self._reading.save(wanted, blocks, partial(self._write_file, place))
        except (Conflict, Corrupt, InvalidInput, NotInstalled, StoreFailed, Unsupported) as error:
            self._failed(place, error)

    def _write_file(self, place: Location, blocks: Iterator[bytes]) -> None:
        if place.size_bytes > _SMALL_BYTES:
            blocks = self._watched(blocks)
        self._tree.write(place.path, blocks, place.modified_ns, place)

    def _failed(self, place: Location, error: CafcatError) -> None:
        problem = FileProblem(place.path, _KINDS.get(error.kind, ProblemKind.NAME), error.message)
        self.report.files_failed += 1
        if len(self.report.failed) < _KEPT_FAILURES:
            self.report.failed.append(problem)
        self._progress.emit(problem)

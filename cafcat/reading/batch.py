"""Many files by name: looked up a thousand at a time, near ones read together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Final

from cafcat.errors import CafcatError, Conflict, Corrupt, InvalidInput, NotInstalled, StoreFailed, Unsupported
from cafcat.model import Location
from cafcat.reading.checking import Damaged
from cafcat.reading.fetch import fetch
from cafcat.reading.outputs import Output
from cafcat.reading.plan import PLANNED_FILES, RangeRead, ReadPlan, in_read_order, merged
from cafcat.reading.reader import Reading
from cafcat.reading.request import ReadRequest
from cafcat.reading.saving import SavedFiles, save_single

__all__ = ["Batch"]

_OF_ONE_FILE: Final = (Corrupt, NotInstalled, StoreFailed, Unsupported)
"""What is wrong with a file, and with no other."""
Failures = list[tuple[str, CafcatError]]
"""Names as they were asked for, and why each cannot be had."""


class Batch:
    """Bytes `[start, end)` of many files, all of them by default; a negative start counts from the end.

    What is wrong with one file is a value and not an exception: NotFound, InvalidInput for a range beyond the file,
    Corrupt, StoreFailed, Unsupported and NotInstalled for what cannot be decoded here. What is wrong with all is
    raised: AccessDenied, Unavailable if a store is out of reach, CatalogUnavailable, CatalogOutdated.
    """

    def __init__(self, reading: Reading, start: int = 0, end: int | None = None) -> None:
        self._reading = reading
        self._range = (start, end)

    def read(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes | CafcatError]]:
        """The content of each, in the order in which they are read."""
        for failed, reads in self._windows(paths):
            yield from failed
            with closing(fetch(self._reading, reads)) as files:
                for wanted, blocks in files:
                    yield wanted.name, self._joined(wanted, blocks)

    def stream(self, paths: Iterable[str]) -> Iterator[tuple[str, Iterator[bytes] | CafcatError]]:
        """The content of each in blocks, in the order asked for; before each five thousand, those of them that
        cannot be found. Blocks raise Corrupt and StoreFailed."""
        for failed, reads in self._windows(paths, in_order=True):
            yield from failed
            with closing(fetch(self._reading, reads)) as files:
                yield from ((wanted.name, blocks) for wanted, blocks in files)

    def get(self, outputs: Mapping[str, Output]) -> Iterator[tuple[str, Location | CafcatError]]:
        """Write each file to its output, as `write_single` does. Yields files once they are durable. The outputs
        have the same mode, and all or none are overwritten. Conflict is a value too. Raises OutputFailed."""
        free: list[str] = []
        for name, output in outputs.items():
            try:
                output.check_free()
                free.append(name)
            except Conflict as error:
                yield name, error
        for failed, reads in self._windows(free):
            yield from failed
            yield from self._saved(reads, outputs)

    def _saved(
        self, reads: Iterator[RangeRead], outputs: Mapping[str, Output]
    ) -> Iterator[tuple[str, Location | CafcatError]]:
        some = next(iter(outputs.values()))
        with SavedFiles(self._reading, overwrite=some.overwrite, mode=some.mode) as saved:
            try:
                yield from self._save(reads, outputs, saved)
            except CafcatError:  # about more than one file: those that are complete stay
                yield from _outcomes(saved)
                raise
            yield from _outcomes(saved)

    def _save(
        self, reads: Iterator[RangeRead], outputs: Mapping[str, Output], saved: SavedFiles
    ) -> Iterator[tuple[str, Location | CafcatError]]:
        """Yields files that failed, and those that went to a device or pipe."""
        with closing(fetch(self._reading, reads)) as files:
            for wanted, blocks in files:
                output = outputs[wanted.name]
                try:
                    if not output.is_special:
                        saved.save(wanted, blocks, output)
                        continue
                    save_single(self._reading, wanted, blocks, output)
                    yield wanted.name, wanted.location
                except (Conflict, InvalidInput, *_OF_ONE_FILE) as error:
                    yield wanted.name, error

    def plan(self, paths: Iterable[str], *, in_order: bool = False) -> ReadPlan:
        """What `read` and `get`, or in_order `stream`, would do."""
        plan = ReadPlan()
        for failed, reads in self._windows(paths, in_order=in_order):
            plan.failed += failed
            for read in reads:
                plan.add(read, self._reading.object_of(read.wanted[0].location))
        return plan

    def _windows(
        self, paths: Iterable[str], *, in_order: bool = False
    ) -> Iterator[tuple[Failures, Iterator[RangeRead]]]:
        """So many at a time as are planned together: those that cannot be had, and reads for the others."""
        rest = iter(paths)
        while names := list(islice(rest, PLANNED_FILES)):
            failed, wanted = self._found(names)
            yield failed, merged(wanted if in_order else in_read_order(wanted), self._reading.store_of)

    def _found(self, names: Sequence[str]) -> tuple[Failures, list[ReadRequest]]:
        places = self._reading.locate_many(names)
        failed: Failures = []
        wanted: list[ReadRequest] = []
        for name in names:
            place = places[name]
            if isinstance(place, CafcatError):
                failed.append((name, place))
                continue
            try:
                wanted.append(ReadRequest.of(name, place, *self._range))
            except InvalidInput as error:
                failed.append((name, error))
        return failed, wanted

    def _joined(self, wanted: ReadRequest, blocks: Iterator[bytes]) -> bytes | CafcatError:
        try:
            return b"".join(blocks)
        except Damaged as error:
            return self._joined_copy(wanted, error)
        except _OF_ONE_FILE as error:
            return error

    def _joined_copy(self, wanted: ReadRequest, found: Damaged) -> bytes | CafcatError:
        parts: list[bytes] = []

        def take(blocks: Iterator[bytes]) -> None:
            parts[:] = blocks

        try:
            self._reading.save_copy(wanted, found, take)
        except _OF_ONE_FILE as error:
            return error
        return b"".join(parts)


def _outcomes(saved: SavedFiles) -> Iterator[tuple[str, Location | CafcatError]]:
    for wanted, error in saved.committed():
        yield wanted.name, error or wanted.location

"""Objects checked in processes of their own: with small files, most of the work is Python's."""

import time
from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.verification import CheckResult, CheckTarget
from cafcat.errors import CafcatError
from cafcat.model import VerifyLevel
from cafcat.operations.verify.chunk_check import Advance, check_target
from cafcat.stores.base import Store
from cafcat.support.workers import WorkerPipe, Workers
from cafcat.writing.rooms import Rooms

__all__ = ["Checked", "check_here", "check_in_workers", "serve"]

_TOLD_SECONDS: Final = 0.2


class Checked(NamedTuple):
    """result None: the object was deleted meanwhile."""

    target: CheckTarget
    result: CheckResult | None


def check_here(
    catalog: Catalog,
    store_of: Callable[[str], Store],
    targets: Iterator[CheckTarget],
    level: VerifyLevel,
    advance: Advance,
) -> Iterator[Checked]:
    """One after the other, in this process."""
    for target in targets:
        yield Checked(target, check_target(catalog, store_of, target, level, advance))


def check_in_workers(
    rooms: Rooms, count: int, targets: Iterator[CheckTarget], level: VerifyLevel, advance: Advance
) -> Generator[Checked, None, None]:
    """Each worker gets the next target when it has done one; results as they come. Raises what the worker's check
    raises, Unavailable for a worker that died, and what `advance` raises, which is called twice a second at
    least."""
    with Workers(serve, count, what="verify") as workers:
        busy: dict[WorkerPipe, CheckTarget] = {}

        def give(pipe: WorkerPipe) -> None:
            target = next(targets, None)
            if target is not None:
                workers.send(pipe, (target, level))
                busy[pipe] = target

        for pipe in workers.pipes:
            workers.send(pipe, rooms)
            give(pipe)
        while busy:
            advance(0, 0)
            for pipe in workers.ready(list(busy)):
                kind, value = workers.receive(pipe)
                if kind == "advance":
                    advance(*value)
                elif kind == "error":
                    raise value
                else:
                    yield Checked(busy.pop(pipe), value)
                    give(pipe)


def serve(pipe: WorkerPipe) -> None:
    """What a worker does: first it is told how to open catalog and stores, then what to check; until nobody is
    there any more to tell it."""
    catalog, store_of = pipe.recv()()
    try:
        while True:
            target, level = pipe.recv()
            told = _Told(pipe)
            try:
                result = check_target(catalog, store_of, target, level, told)
            except CafcatError as error:
                pipe.send(("error", error))
                continue
            told.flush()
            pipe.send(("done", result))
    finally:
        catalog.close()


class _Told:
    """An Advance that tells the parent, a few times a second. If that is gone, it raises OSError."""

    def __init__(self, pipe: WorkerPipe) -> None:
        self._pipe = pipe
        self._files = self._size_bytes = 0
        self._last = time.monotonic()

    def __call__(self, files: int, size_bytes: int) -> None:
        self._files += files
        self._size_bytes += size_bytes
        if time.monotonic() - self._last >= _TOLD_SECONDS:
            self.flush()

    def flush(self) -> None:
        self._pipe.send(("advance", (self._files, self._size_bytes)))
        self._files = self._size_bytes = 0
        self._last = time.monotonic()

"""Objects checked in processes of their own, one for each processor: most of the work on small files is Python's.

A worker is a Python that runs `serve`, and a pipe to it. It is not made by multiprocessing, which would run the
caller's main script again in each. It is in a process group of its own: Ctrl-C is for its parent to deal with.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.verification import CheckResult, CheckTarget
from cafcat.errors import CafcatError, Unavailable
from cafcat.maintenance.check_chunk import Advance, check_target
from cafcat.model import VerifyLevel
from cafcat.stores.base import Store

__all__ = ["Checked", "Rooms", "Workers", "check_here", "serve"]

Rooms = Callable[[], tuple[Catalog, Callable[[str], Store]]]
"""Opens catalog and stores anew, in another process: has to be picklable."""

_TOLD_SECONDS: Final = 0.2
_WAIT_SECONDS: Final = 0.5
_END_SECONDS: Final = 5.0


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


class Workers:
    """A context manager: leaving it ends them, whatever they are at."""

    def __init__(self, rooms: Rooms, count: int) -> None:
        self._pipes: list[Connection[Any, Any]] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for _ in range(count):
                self._start(rooms)
        except BaseException:
            self._end(at_once=True)
            raise

    def _start(self, rooms: Rooms) -> None:
        ours, theirs = Pipe()
        self._pipes.append(ours)
        with theirs:
            number = theirs.fileno()
            program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve({number})"
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", program],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[number],
                    process_group=0,
                )
            )
        self._send(ours, rooms)

    def check(self, targets: Iterator[CheckTarget], level: VerifyLevel, advance: Advance) -> Iterator[Checked]:
        """Each worker gets the next target when it has done one; results as they come. Raises what the worker's
        check raises, Unavailable for a worker that died, and what `advance` raises, which is called twice a second
        at least."""
        busy: dict[Connection[Any, Any], CheckTarget] = {}
        for pipe in self._pipes:
            self._give(pipe, next(targets, None), level, busy)
        while busy:
            advance(0, 0)
            for pipe in _ready(list(busy)):
                kind, value = self._receive(pipe)
                if kind == "advance":
                    advance(*value)
                elif kind == "error":
                    raise value
                else:
                    yield Checked(busy.pop(pipe), value)
                    self._give(pipe, next(targets, None), level, busy)

    def _give(
        self,
        pipe: "Connection[Any, Any]",
        target: CheckTarget | None,
        level: VerifyLevel,
        busy: "dict[Connection[Any, Any], CheckTarget]",
    ) -> None:
        if target is not None:
            self._send(pipe, (target, level))
            busy[pipe] = target

    def _send(self, pipe: "Connection[Any, Any]", message: object) -> None:
        try:
            pipe.send(message)
        except OSError as error:
            raise self._died(pipe) from error

    def _receive(self, pipe: "Connection[Any, Any]") -> tuple[str, Any]:
        try:
            kind, value = pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died(pipe) from error
        return kind, value

    def _died(self, pipe: "Connection[Any, Any]") -> Unavailable:
        process = self._processes[self._pipes.index(pipe)]
        try:
            code = process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        hint = "run it again: it goes on where it was"
        return Unavailable(f"a process of verify died (exit code {code})", hint=hint)

    def _end(self, *, at_once: bool) -> None:
        for pipe in self._pipes:
            pipe.close()  # one that waits for work ends by that
        for process in self._processes:
            if at_once:
                process.kill()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(at_once=error is not None)


def _ready(pipes: "list[Connection[Any, Any]]") -> "list[Connection[Any, Any]]":
    """Those that have something to say, or have ended; none if that takes too long."""
    ready = wait(pipes, _WAIT_SECONDS)
    return [pipe for pipe in pipes if pipe in ready]


def serve(descriptor: int) -> None:
    """What a worker does: first it is told how to open catalog and stores, then what to check; until nobody is
    there any more to tell it."""
    with Connection(descriptor) as pipe:
        try:
            _serve(pipe)
        except (EOFError, OSError):
            return


def _serve(pipe: "Connection[Any, Any]") -> None:
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

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
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

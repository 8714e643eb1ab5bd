"""Progress for tests: collects events, or calls a function at a certain moment."""

from collections.abc import Callable
from typing import Any

from cafcat.events import ChunkCommitted, Event, Warned
from cafcat.model import FileProblem
from cafcat.progress import Progress

__all__ = ["AfterFiles", "Following", "Heard", "Listener", "Once", "follow", "problems"]

_EVENT_OPTIONS = ("on_checked", "on_settled", "on_taken", "on_chosen", "on_pruned", "on_adopted", "on_difference")


class Listener(Progress):
    """Has a method for each common event. Override the methods that a test needs."""

    def emit(self, event: Event) -> None:
        if isinstance(event, FileProblem):
            self.problem(event)
        elif isinstance(event, Warned):
            self.warn(event.message)
        elif isinstance(event, ChunkCommitted):
            self.chunk_committed(*event[:3])

    def problem(self, problem: FileProblem) -> None:
        """A file was skipped, refused or failed."""

    def warn(self, message: str) -> None:
        """The operation warned."""

    def chunk_committed(self, chunk: str, files: int, size_bytes: int) -> None:
        """A chunk was committed."""


class Heard(Listener):
    """Keeps problems and warnings."""

    def __init__(self) -> None:
        self.problems: list[FileProblem] = []
        self.warnings: list[str] = []

    def problem(self, problem: FileProblem) -> None:
        self.problems.append(problem)

    def warn(self, message: str) -> None:
        self.warnings.append(message)


class Following(Progress):
    """Combines another Progress with functions.

    Args:
        progress: Gets all calls.
        should_stop: Called at each checkpoint: returns True to end the operation, or raises.
        on: Called with each event that only some operations report.
    """

    def __init__(
        self,
        progress: Progress | None = None,
        should_stop: Callable[[], object] | None = None,
        on: Callable[[Any], object] | None = None,
    ) -> None:
        self._progress = progress or Progress()
        self._should_stop = should_stop
        self._on = on
        self._stopping = False

    def begin(self, verb: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        self._progress.begin(verb, files=files, size_bytes=size_bytes)

    def advance(self, files: int, size_bytes: int) -> None:
        self._progress.advance(files, size_bytes)

    def emit(self, event: Event) -> None:
        if self._on is None or isinstance(event, FileProblem | Warned | ChunkCommitted):
            self._progress.emit(event)
        else:
            self._on(event)

    def end(self) -> None:
        self._progress.end()

    @property
    def stopping(self) -> bool:
        return self._stopping

    def checkpoint(self) -> None:
        if self._should_stop is not None:
            self._stopping = bool(self._should_stop())


def follow(repository: Any, options: dict[str, Any]) -> Any:
    """Return the repository with the progress in `options` (progress, should_stop, on_...), which are taken out."""
    progress, should_stop = options.pop("progress", None), options.pop("should_stop", None)
    on = next((options.pop(name) for name in _EVENT_OPTIONS if options.get(name) is not None), None)
    for name in _EVENT_OPTIONS:
        options.pop(name, None)
    if progress is None and should_stop is None and on is None:
        return repository
    return repository.with_progress(Following(progress, should_stop, on))


def problems(heard: Heard) -> set[tuple[str, str]]:
    """Return path and kind of each problem."""
    return {(problem.path, problem.kind.value) for problem in heard.problems}


class Once(Progress):
    """Calls a function when the first block is read."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def advance(self, _files: int, _size_bytes: int) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()


class AfterFiles(Heard):
    """Calls a function once, after this number of files."""

    def __init__(self, files: int, act: Callable[[], object]) -> None:
        super().__init__()
        self._files = files
        self._act = act

    def advance(self, files: int, _: int) -> None:
        self._files -= files
        if files and self._files == 0:
            self._act()

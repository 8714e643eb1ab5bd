"""Finds files that the catalog has and a source lacks, while the source is listed."""

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from cafcat.model import FileProblem, ProblemKind
from cafcat.sources.names import printable

__all__ = ["MissingFiles"]

_MOST_PROBLEMS: Final = 100_000


class _Known(Protocol):
    """A file of the catalog."""

    @property
    def path(self) -> str:
        """Path of the file."""


Known = TypeVar("Known", bound=_Known)


class MissingFiles(Generic[Known]):
    """Compares the files that the catalog has in a folder with those that a source lists. Both lists must ascend.

    A file below a folder that the source cannot read, or that belongs to cafcat, is not missing.

    Attributes:
        is_reliable: False if the paths of the source did not ascend, or it had more than 100,000 problems. From
            then on, no file is reported as missing.
    """

    def __init__(self, known: Iterator[Known], includes: Callable[[str], bool]) -> None:
        """Read the first file of the catalog.

        Args:
            known: The files of the catalog, in ascending order of their paths.
            includes: Returns False for a path that the source leaves out, because of a filter. Such a file is not
                missing.
        """
        self._known = known
        self._includes = includes
        self._problems: dict[str, FileProblem] = {}
        self._next = next(known, None)
        self._last = ""
        self.is_reliable = True

    def add_problem(self, problem: FileProblem) -> None:
        """Remember a problem: a file or folder that the source could not read, or a path that is no file there."""
        self._problems[problem.path] = problem
        self.is_reliable = self.is_reliable and len(self._problems) <= _MOST_PROBLEMS

    def problem_with(self, path: str) -> FileProblem | None:
        """Return the problem that the source has with a path, or with the lowest folder of it that has one.

        None if there is no such problem.
        """
        return next(filter(None, map(self._problem_at, _above(path))), None)

    def _problem_at(self, path: str) -> FileProblem | None:
        return self._problems.get(printable(path))

    def before(self, path: str) -> Iterator[Known]:
        """Yield the missing files whose paths come before that of the next file of the source."""
        self.is_reliable = self.is_reliable and path > self._last
        self._last = path
        while self.is_reliable and self._next is not None and self._next.path < path:
            yield from self._missing(self._next)
            self._take()
        if self._next is not None and self._next.path == path:
            self._take()

    def rest(self) -> Iterator[Known]:
        """Yield the missing files after the last file of the source."""
        while self.is_reliable and self._next is not None:
            yield from self._missing(self._next)
            self._take()

    def _take(self) -> None:
        self._next = next(self._known, None)

    def _missing(self, file: Known) -> Iterator[Known]:
        """Yield the file, unless its absence from the list has another reason."""
        if self._includes(file.path) and not any(map(self._is_unreadable, _above(file.path))):
            yield file

    def _is_unreadable(self, path: str) -> bool:
        problem = self._problem_at(path)
        return problem is not None and (problem.kind.is_failure or problem.kind is ProblemKind.OWN)


def _above(path: str) -> Iterator[str]:
    """Yield the path itself, and then the folders that contain it, up to the top one."""
    while path:
        yield path
        path = path.rpartition("/")[0]

"""What is told of a work's progress: kept, or a moment to do something else meanwhile."""

from collections.abc import Callable

from cafcat.model import FileProblem
from cafcat.progress import Progress

__all__ = ["AfterFiles", "Heard", "Once", "problems"]


class Heard(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.problems: list[FileProblem] = []
        self.warnings: list[str] = []

    def problem(self, problem: FileProblem) -> None:
        self.problems.append(problem)

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def problems(heard: Heard) -> set[tuple[str, str]]:
    """Path and kind of each."""
    return {(problem.path, problem.kind.value) for problem in heard.problems}


class Once(Progress):
    """Does something when the first block is read."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def advance(self, _files: int, _size_bytes: int) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()


class AfterFiles(Heard):
    """Does something once, when so many files were taken."""

    def __init__(self, files: int, act: Callable[[], object]) -> None:
        super().__init__()
        self._files = files
        self._act = act

    def advance(self, files: int, _: int) -> None:
        self._files -= files
        if files and self._files == 0:
            self._act()

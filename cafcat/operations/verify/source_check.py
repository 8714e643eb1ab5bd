"""The files of a source, read again, against what the catalog has under their paths."""

from collections.abc import Generator, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Final

from cafcat.catalog.chunks.verification import CheckResult
from cafcat.errors import SourceFailed
from cafcat.model import FileProblem, FindingKind, Location, ProblemKind, Verdict
from cafcat.operations.source_files import opened_again
from cafcat.operations.verify.findings import Findings
from cafcat.scanning.batches import OpenResult, SourceBroke, blocks_of
from cafcat.session import Session
from cafcat.sources.base import Source, WholeFolderSource
from cafcat.support.checksums import crc32c

__all__ = ["SourceCheck"]

_MOST_PROBLEMS: Final = 100_000


class SourceCheck:
    """One source. Memory does not depend on its size."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._catalog = session.catalog
        self._progress = session.progress
        self._findings = Findings()
        self._files = self._bytes = 0

    def check(self, source: Source) -> CheckResult | None:
        """Read every file of the source that the catalog has. Return None if the check was stopped.

        Files that are missing at the source are found only for a WholeFolderSource.
        """
        folder = source.catalog_folder if isinstance(source, WholeFolderSource) else None
        started_at = datetime.now(UTC)
        missing = None if folder is None else _Missing(self._locations(folder), self._findings)
        try:
            with closing(self._opened(source, missing)) as files:
                for location, opened in files:
                    if self._session.should_end():
                        return None
                    self._compare(location, opened)
            if missing is not None:
                missing.end()
                if not missing.can_tell:
                    self._progress.warn(f"{source.name}: nobody can tell which files are missing there")
        except SourceBroke as broke:
            self._findings.add(FindingKind.UNREADABLE, f"{source.name}: {broke.reason}")
        return CheckResult(self._verdict(), self._findings.listed(), self._files, self._bytes, started_at)

    def _verdict(self) -> Verdict:
        if self._findings.count(FindingKind.SOURCE):
            return Verdict.DAMAGED
        return Verdict.UNREADABLE if self._findings else Verdict.OK

    def _opened(
        self, source: Source, missing: "_Missing | None"
    ) -> Generator[tuple[Location, OpenResult], None, None]:
        def pass_by(path: str) -> bool:
            if missing is not None:
                missing.pass_by(path)
            return True

        return opened_again(self._catalog, source, pass_by, lambda problem: self._take_problem(problem, missing))

    def _locations(self, folder: str) -> Iterator[str]:
        """All paths below a folder of the catalog, in order."""
        after: str | None = None
        while page := self._catalog.files.page(folder, after=after):
            yield from (location.path for location in page)
            after = page[-1].path

    def _take_problem(self, problem: FileProblem, missing: "_Missing | None") -> None:
        self._progress.emit(problem)
        if problem.kind.is_failure:
            self._findings.add(FindingKind.UNREADABLE, problem.message, problem.path)
        if missing is not None:
            missing.take(problem)

    def _compare(self, location: Location, opened: OpenResult) -> None:
        self._files += 1
        if isinstance(opened, SourceFailed):
            self._unreadable(location, opened)
            return
        try:
            with opened:
                size_bytes, checksum = opened.size_bytes, None
                if size_bytes == location.size_bytes:
                    checksum = self._checksum(opened)
        except SourceFailed as error:
            self._unreadable(location, error)
            return
        if checksum is None:
            self._differs(location, f"it has {size_bytes:,} bytes at its source, {location.size_bytes:,} here")
        elif checksum != location.crc32c:
            self._differs(location, f"it has CRC-32C {checksum:08x} at its source, {location.crc32c:08x} here")

    def _checksum(self, opened: OpenResult) -> int:
        checksum = 0
        assert not isinstance(opened, SourceFailed)  # noqa: S101 - the caller has asked
        for block in blocks_of(opened):
            checksum = crc32c(block, checksum)
            self._bytes += len(block)
            self._progress.advance(0, len(block))
        self._progress.advance(1, 0)
        return checksum

    def _unreadable(self, location: Location, error: SourceFailed) -> None:
        self._findings.add(FindingKind.UNREADABLE, error.message, location.path)

    def _differs(self, location: Location, message: str) -> None:
        self._findings.add(FindingKind.SOURCE, message, location.path)


class _Missing:
    """Goes through the paths of the catalog beside those of the source, both in ascending order."""

    def __init__(self, paths: Iterator[str], findings: Findings) -> None:
        self._paths = paths
        self._findings = findings
        self._problems: dict[str, FileProblem] = {}
        self._next = next(paths, None)
        self._last = ""
        self.can_tell = True
        """Whether the source gave its files in order, and few enough problems."""

    def take(self, problem: FileProblem) -> None:
        """The source could not say what is there, or below it."""
        self._problems[problem.path] = problem
        self.can_tell = self.can_tell and len(self._problems) <= _MOST_PROBLEMS

    def pass_by(self, path: str) -> None:
        """The source has this file."""
        self.can_tell = self.can_tell and path > self._last
        self._last = path
        while self.can_tell and self._next is not None and self._next < path:
            self._tell(self._next)
            self._next = next(self._paths, None)
        if self._next == path:
            self._next = next(self._paths, None)

    def end(self) -> None:
        """The source has no more."""
        while self.can_tell and self._next is not None:
            self._tell(self._next)
            self._next = next(self._paths, None)

    def _tell(self, path: str) -> None:
        problem = self._problems.get(path)
        if problem is not None and not problem.kind.is_failure:
            self._findings.add(FindingKind.SOURCE, f"it is something else at its source: {problem.message}", path)
        elif not any(self._unknown(above) for above in _above(path)):
            self._findings.add(FindingKind.SOURCE, "it is not at its source any more", path)

    def _unknown(self, path: str) -> bool:
        problem = self._problems.get(path)
        return problem is not None and (problem.kind.is_failure or problem.kind is ProblemKind.OWN)


def _above(path: str) -> Iterator[str]:
    """The path itself, and the folders that it is in."""
    while path:
        yield path
        path = path.rpartition("/")[0]

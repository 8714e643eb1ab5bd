"""Checks the files of a source, which are read again, against their size and checksum in the catalog."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime

from cafcat.catalog.chunks.verification import CheckResult
from cafcat.errors import SourceFailed
from cafcat.model import FileProblem, FindingKind, Location, SourceFile, Verdict
from cafcat.operations.source_files import open_existing_files
from cafcat.operations.verify.findings import Findings
from cafcat.scanning.batches import OpenResult, SourceBroke, batches_of, blocks_of
from cafcat.scanning.missing import MissingFiles
from cafcat.session import Session
from cafcat.sources.base import Source, WholeFolderSource
from cafcat.sources.names import printable
from cafcat.support.checksums import crc32c

__all__ = ["SourceCheck"]


class SourceCheck:
    """Checks one source against the catalog. Memory does not depend on the size of the source."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._catalog = session.catalog
        self._progress = session.progress
        self._findings = Findings()
        self._files = self._bytes = self._equal = self._unreadable = 0

    def check(self, source: Source) -> CheckResult | None:
        """Compare size and content of each file of a source with the catalog.

        Files of the catalog that the source lacks are found only for a WholeFolderSource. Errors of the source are
        part of the result.

        Args:
            source: The source.

        Returns:
            The result; None if the user ended the operation before all files were compared.
        """
        started_at = datetime.now(UTC)
        missing = None
        # Without a folder before the names, the catalog's files of all sources would be compared with this one.
        if isinstance(source, WholeFolderSource) and source.catalog_folder:
            missing = MissingFiles(self._locations(source.catalog_folder), source.includes)
        try:
            with closing(self._opened(source, missing)) as files:
                for location, opened in files:
                    if self._session.should_end():
                        return None
                    self._compare(location, opened)
            if missing is not None:
                self._add_missing(missing, missing.rest())
                if not missing.is_reliable:
                    self._progress.warn(
                        f"{source.name}: cannot find out which files of the catalog are missing in this source"
                    )
        except SourceBroke as broke:
            self._findings.add(FindingKind.UNREADABLE, f"{source.name}: {broke.reason}")
        return CheckResult(
            self._verdict(),
            self._findings.listed(),
            self._files,
            self._bytes,
            started_at,
            absent_files=self._findings.count(FindingKind.ABSENT),
            unpacked_files=self._findings.count(FindingKind.UNPACKED),
            unreadable_files=self._unreadable,
            equal_files=self._equal,
        )

    def _verdict(self) -> Verdict:
        if self._findings.count(FindingKind.SOURCE):
            return Verdict.DAMAGED
        return Verdict.UNREADABLE if self._findings.count(FindingKind.UNREADABLE) else Verdict.OK

    def _opened(
        self, source: Source, missing: MissingFiles[Location] | None
    ) -> Generator[tuple[Location, OpenResult], None, None]:
        for batch in batches_of(source):
            for item in batch:
                if isinstance(item, FileProblem):
                    self._handle_problem(item, missing)
            files = [item for item in batch if isinstance(item, SourceFile)]
            if missing is not None:
                for file in files:
                    self._add_missing(missing, missing.before(file.path))
            yield from open_existing_files(self._catalog, source, files, self._add_unpacked)

    def _add_unpacked(self, files: Sequence[SourceFile]) -> None:
        """Add a finding for each of some files that are not in the catalog, except for log files in archives."""
        logs = self._catalog.logs.find_existing(files)
        for n, file in enumerate(files):
            if n not in logs.unchanged and n not in logs.changed:
                self._findings.add(FindingKind.UNPACKED, "the file of the source is not in the catalog", file.path)

    def _locations(self, folder: str) -> Iterator[Location]:
        """Yield all files below a folder of the catalog, in ascending order of their paths."""
        for page in self._catalog.files.pages(folder):
            yield from page

    def _add_missing(self, missing: MissingFiles[Location], files: Iterable[Location]) -> None:
        for file in files:
            problem = missing.problem_with(file.path)
            reason = "the file does not exist in its source any more"
            if problem is not None and problem.path == printable(file.path):
                reason = f"the path is not a file in its source: {problem.message}"
            elif problem is not None:
                reason = f"{problem.path} is not a folder in its source: {problem.message}"
            self._findings.add(FindingKind.ABSENT, reason, file.path)

    def _handle_problem(self, problem: FileProblem, missing: MissingFiles[Location] | None) -> None:
        if problem.kind.is_failure:
            self._add_unreadable(problem.path, problem.message)
        else:
            self._progress.emit(problem)
        if missing is not None:
            missing.add_problem(problem)

    def _compare(self, location: Location, opened: OpenResult) -> None:
        if isinstance(opened, SourceFailed):
            self._add_unreadable(location.path, opened.message)
            return
        try:
            with opened:
                size_bytes, checksum = opened.size_bytes, None
                if size_bytes == location.size_bytes:
                    checksum = self._checksum(opened)
        except SourceFailed as error:
            self._add_unreadable(location.path, error.message)
            return
        self._files += 1
        if checksum is None:
            here = f"{location.size_bytes:,} in the catalog"
            self._add_difference(location, f"the file has {size_bytes:,} bytes in its source, but {here}")
        elif checksum != location.crc32c:
            here = f"{location.crc32c:08x} in the catalog"
            self._add_difference(location, f"the file has CRC-32C {checksum:08x} in its source, but {here}")
        else:
            self._equal += 1

    def _checksum(self, opened: OpenResult) -> int:
        checksum = 0
        assert not isinstance(opened, SourceFailed)  # noqa: S101 - the caller has checked this
        for block in blocks_of(opened):
            checksum = crc32c(block, checksum)
            self._bytes += len(block)
            self._progress.advance(0, len(block))
        self._progress.advance(1, 0)
        return checksum

    def _add_unreadable(self, path: str, message: str) -> None:
        self._findings.add(FindingKind.UNREADABLE, message, path)
        self._unreadable += 1

    def _add_difference(self, location: Location, message: str) -> None:
        self._findings.add(FindingKind.SOURCE, message, location.path)

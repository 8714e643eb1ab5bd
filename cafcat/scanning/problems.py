"""What went wrong with single files: told, counted, and kept as events of the run."""

from typing import Final

from cafcat.catalog.catalog import Catalog
from cafcat.errors import CafcatError
from cafcat.model import FileProblem, IngestReport
from cafcat.progress import Progress

__all__ = ["Problems"]

_EVENTS: Final = 5_000


class Problems:
    """Of one run, or of one process of it."""

    def __init__(self, catalog: Catalog, report: IngestReport, progress: Progress) -> None:
        self._catalog = catalog
        self._report = report
        self._progress = progress
        self._failures: list[FileProblem] = []

    def add(self, problem: FileProblem) -> None:
        """Counts it as failed or skipped."""
        self._progress.emit(problem)
        if not problem.kind.is_failure:
            self._report.files_skipped += 1
            return
        self._report.files_failed += 1
        self._failures.append(problem)
        if len(self._failures) >= _EVENTS:
            self.record()

    def record(self) -> None:
        """Failures become events; losing them with a catalog that is gone must not hide why it is gone."""
        failures, self._failures = self._failures, []
        if failures and self._report.run is not None:
            try:
                self._catalog.runs.record_failed_files(self._report.run, failures)
            except CafcatError:
                self._failures = failures[-_EVENTS:]

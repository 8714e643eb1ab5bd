"""Problems with single files of an ingest: reported to the user, counted, and stored as events of the run."""

from typing import Final

from cafcat.catalog.catalog import Catalog
from cafcat.errors import CafcatError
from cafcat.model import FileProblem
from cafcat.progress import Progress
from cafcat.reports import IngestReport

__all__ = ["Problems"]

_EVENTS: Final = 5_000
"""Number of failures that are stored together. If storing fails, this many are kept at most, the newest ones."""


class Problems:
    """Collects the problems with files of one ingest run, or of one worker process of a run."""

    def __init__(self, catalog: Catalog, report: IngestReport, progress: Progress) -> None:
        """Start an empty collection of problems.

        Args:
            catalog: Stores failures as events.
            report: Counts failed and skipped files.
            progress: Reports each problem to the user.
        """
        self._catalog = catalog
        self._report = report
        self._progress = progress
        self._failures: list[FileProblem] = []

    def add(self, problem: FileProblem) -> None:
        """Report a problem to the user, and count its file as failed or skipped. Failures are stored later."""
        self._progress.emit(problem)
        if not problem.kind.is_failure:
            self._report.files_skipped += 1
            return
        self._report.files_failed += 1
        self._failures.append(problem)
        if len(self._failures) >= _EVENTS:
            self.record()

    def record(self) -> None:
        """Store the failures since the last call as events of the run. A dry run has no run, and stores nothing.

        Errors of the catalog are not raised. The last 5,000 failures are then kept for the next call.
        """
        failures, self._failures = self._failures, []
        if failures and self._report.run is not None:
            try:
                self._catalog.runs.record_failed_files(self._report.run, failures)
            except CafcatError:
                self._failures = failures[-_EVENTS:]

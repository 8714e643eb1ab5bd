"""Problems with single files: reported, counted, and stored as events of the run."""

from typing import Final

from cafcat.catalog.catalog import Catalog
from cafcat.errors import CafcatError
from cafcat.model import FileProblem, IngestReport
from cafcat.progress import Progress

__all__ = ["Problems"]

_EVENTS: Final = 5_000
"""How many failures are stored at once, and how many are buffered at most if the catalog fails."""


class Problems:
    """Collects the problems of one run, or of one process of a run."""

    def __init__(self, catalog: Catalog, report: IngestReport, progress: Progress) -> None:
        """Begin without problems.

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
        """Report a problem, and count its file as failed or skipped."""
        self._progress.emit(problem)
        if not problem.kind.is_failure:
            self._report.files_skipped += 1
            return
        self._report.files_failed += 1
        self._failures.append(problem)
        if len(self._failures) >= _EVENTS:
            self.record()

    def record(self) -> None:
        """Store failures as events. Errors of the catalog are ignored: another error ends the run then."""
        failures, self._failures = self._failures, []
        if failures and self._report.run is not None:
            try:
                self._catalog.runs.record_failed_files(self._report.run, failures)
            except CafcatError:
                self._failures = failures[-_EVENTS:]

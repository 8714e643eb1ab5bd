"""The results of the checks, and the numbers of the catalog, as metrics for Prometheus."""

from collections import Counter

from cafcat.operations.catalog_metrics import catalog_metrics
from cafcat.operations.doctor.report import DoctorReport, Level
from cafcat.support.exposition import Family, Sample, single

__all__ = ["doctor_metrics"]


def doctor_metrics(report: DoctorReport) -> list[Family]:
    """Return how many results each check has of each level, and the numbers of the catalog if they were read."""
    counts = Counter((result.check, result.level) for result in report.diagnoses)
    samples = [
        Sample(counts[check, level], {"check": check, "level": level})
        for check in dict.fromkeys(check for check, _ in counts)
        for level in Level
    ]
    results = Family("doctor_results", "gauge", "Results of `cafcat doctor`, by check and level.", tuple(samples))
    is_up = single("catalog_up", "gauge", "1 if the database answers, else 0.", int(report.totals is not None))
    return [results, is_up, *([] if report.totals is None else catalog_metrics(report.totals))]

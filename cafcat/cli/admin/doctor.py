"""The command `cafcat doctor`: its output."""

from collections.abc import Iterator

import typer

from cafcat.cli.call import Call, verb
from cafcat.operations.doctor.options import DoctorOptions
from cafcat.operations.doctor.report import DoctorReport, Level
from cafcat.support.quantities import plural

__all__ = ["register"]


def doctor(call: Call, options: DoctorOptions) -> int:
    """Check the installation, the settings, the database, the stores and the catalog. The checks change nothing.

    The exit code is 1 if there is an error, and 0 if there are only warnings.

    Example: cafcat doctor --json
    """
    from cafcat.operations.doctor.metrics import doctor_metrics
    from cafcat.operations.doctor.run import run

    with call.repository() as repository:
        report = run(repository.session, options)
    if call.job is not None:
        call.job.add(doctor_metrics(report))
    document = {
        "healthy": report.is_healthy,
        "checks": [diagnosis._asdict() for diagnosis in report.diagnoses],
        "skipped": report.skipped,
    }
    call.output.show(document, map(call.output.shown, _lines(report, quiet=call.quiet)))
    return 0 if report.is_healthy else 1


def _lines(report: DoctorReport, *, quiet: bool) -> Iterator[str]:
    width = max(len(diagnosis.check) for diagnosis in report.diagnoses)
    for check, level, found, remedy in report.diagnoses:
        if quiet and level is Level.OK:
            continue
        yield f"{level:<8} {check:<{width}}  {found}"
        if remedy is not None:
            yield f"{'':<8} {'':<{width}}  -> {remedy}"
    if quiet:
        return
    if report.skipped:
        yield f"not checked, because they need a database: {', '.join(report.skipped)}"
    errors, warnings = len(report.of(Level.ERROR)), len(report.of(Level.WARNING))
    yield f"{plural(errors, 'error')}, {plural(warnings, 'warning')}"


def register(app: typer.Typer) -> None:
    """Add `cafcat doctor` to the commands of the program."""
    verb(app, "doctor", doctor, measured=True)

"""Runs `cafcat doctor`: one check after the other, each for a limited time."""

from contextlib import closing
from typing import Final

from cafcat.errors import CafcatError
from cafcat.operations.doctor.checks import CHECKS, Check
from cafcat.operations.doctor.examination import Examination, Reach
from cafcat.operations.doctor.found import Found, error, failed
from cafcat.operations.doctor.options import DoctorOptions
from cafcat.operations.doctor.report import Diagnosis, DoctorReport
from cafcat.session import Session
from cafcat.support.time_limit import call_within

__all__ = ["run"]

_OWN_LIMIT_SECONDS: Final = 1.0
"""What a check gets on top, because checks of stores limit the time of each store themselves."""
_UNKNOWN: Final = "find out why with `cafcat doctor --debug`, or ask the administrator of this system"


def run(session: Session, options: DoctorOptions) -> DoctorReport:
    """Run all checks, and return their results. A missing database, store or library is a result, not an error.

    Args:
        session: The session. Only its settings are used: the checks open a database of their own, whose schema they
            do not migrate.
        options: How long a check may take.
    """
    examination = Examination(session.settings, options.timeout_seconds)
    diagnoses: list[Diagnosis] = []
    skipped: list[str] = []
    with closing(examination):
        for check in CHECKS:
            session.checkpoint()
            if check.needs > examination.reach:
                skipped.append(check.name)
                continue
            diagnoses += (Diagnosis(check.name, *found) for found in _results(check, examination))
        totals = examination.totals if examination.reach >= Reach.NUMBERS else None
    return DoctorReport(tuple(diagnoses), tuple(skipped), totals)


def _results(check: Check, examination: Examination) -> list[Found]:
    seconds = examination.timeout_seconds + _OWN_LIMIT_SECONDS
    try:
        return call_within(lambda: list(check.function(examination)), seconds)
    except TimeoutError:
        if check.needs > Reach.NOTHING or check.name == "database":
            examination.reach = Reach.NOTHING  # the connection may be blocked for ever
        return [error(f"no answer within {seconds:g} s", "find out why, or give more time with --timeout")]
    except (CafcatError, OSError) as reason:
        return [failed(reason, _UNKNOWN)]

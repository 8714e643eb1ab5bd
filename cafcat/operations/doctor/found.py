"""Results of a check: `ok`, `warning` and `error`. A check yields any number of results."""

from typing import NamedTuple

from cafcat.errors import CafcatError
from cafcat.operations.doctor.report import Level

__all__ = ["Found", "error", "failed", "ok", "warning"]


class Found(NamedTuple):
    """One result of a check, without the name of the check.

    Attributes:
        level: How serious the result is.
        text: The finding, in one line.
        remedy: The next step for the user, in one line; None if nothing has to be done.
    """

    level: Level
    text: str
    remedy: str | None


def ok(text: str) -> Found:
    """Return the result of a check that found nothing to do."""
    return Found(Level.OK, text, None)


def warning(text: str, remedy: str) -> Found:
    """Return a result about a slow, unsafe or forgotten thing, with its remedy."""
    return Found(Level.WARNING, text, remedy)


def error(text: str, remedy: str) -> Found:
    """Return a result about a fault that stops work or may lose files, with its remedy."""
    return Found(Level.ERROR, text, remedy)


def failed(reason: CafcatError | OSError, remedy: str, level: Level = Level.ERROR) -> Found:
    """Return the result of a check that an exception ended.

    Args:
        reason: The exception. Its hint, if it has one, is the remedy.
        remedy: What to do if the exception has no hint.
        level: How serious the failure is.
    """
    if isinstance(reason, CafcatError):
        return Found(level, reason.message, reason.hint or remedy)
    return Found(level, f"{reason.strerror or reason}: {reason.filename}", remedy)

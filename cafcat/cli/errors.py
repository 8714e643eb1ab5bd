"""Turns exceptions into one line or one JSON document for the user, and an exit code."""

from typing import Any, NamedTuple

import typer

from cafcat.errors import CafcatError

__all__ = [
    "BROKEN_PIPE",
    "DAMAGE",
    "EXIT_CODES",
    "INTERRUPTED",
    "SOME_FAILED",
    "USAGE",
    "ErrorShown",
    "describe",
]

USAGE = 2
SOME_FAILED = 3
DAMAGE = 5
INTERRUPTED = 130
BROKEN_PIPE = 141
"""128 + SIGPIPE: the exit code that a shell shows for a program that was ended because its pipe was closed."""

EXIT_CODES = {
    "invalid_input": USAGE,
    "refused": USAGE,
    "not_found": 4,
    "corrupt": DAMAGE,
    "not_confirmed": 9,
    "catalog_revision": 10,
    "catalog_unavailable": 10,
    "locked": 11,
    "credentials": 12,
}
"""Exit code of a CafcatError by its `kind`. A kind that is missing here has 1. docs/cli.md has the whole table."""


class ErrorShown(NamedTuple):
    """The output and the exit code of the command line for an exception.

    Attributes:
        document: The value of the key "error" with --json.
        text: The line that people see without --json.
        code: The exit code of the program.
    """

    document: dict[str, Any]
    text: str
    code: int


def describe(error: Exception) -> ErrorShown:
    """Return the output and the exit code for an exception.

    An exception that is no CafcatError, no error of typer and no OSError is shown as a bug of cafcat.
    """
    if isinstance(error, CafcatError):
        where = {"path": error.path, "chunk": error.chunk, "byte": error.byte, "hint": error.hint}
        document = {"kind": error.kind, "message": error.message} | where
        return ErrorShown(document, str(error), EXIT_CODES.get(error.kind, 1))
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        hint = f"see {context.command_path} --help" if context else None
        return _plain("invalid_input", error.format_message().rstrip("."), hint, error.exit_code)
    if isinstance(error, OSError):
        file = f": {error.filename}" if error.filename else ""
        return _plain("failure", f"{error.strerror or error}{file}", None, 1)
    hint = "this is a bug of cafcat; run again with --debug to see where"
    return _plain("failure", f"unexpected {type(error).__name__}: {error}", hint, 1)


def _plain(kind: str, message: str, hint: str | None, code: int) -> ErrorShown:
    document = {"kind": kind, "message": message, "path": None, "chunk": None, "byte": None, "hint": hint}
    return ErrorShown(document, f"{message}; {hint}" if hint else message, code)

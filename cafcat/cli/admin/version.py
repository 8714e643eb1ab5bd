"""The command `cafcat version`: its flags and output."""

import typer

from cafcat import __version__
from cafcat.cli.call import Call, verb

__all__ = ["register", "show"]


def show(call: Call) -> None:
    """Print the version. With -v, also print whether the native part is used.

    Example: cafcat version -v
    """
    from cafcat.native.library import why_unused

    reason = why_unused()
    native = "native part: used" if reason is None else f"native part: not used ({reason})"
    document = {"version": __version__, "native": reason is None, "native_reason": reason}
    call.output.show(document, [f"cafcat {__version__}", *([call.output.shown(native)] if call.verbose else [])])


def register(app: typer.Typer) -> None:
    """Add `cafcat version` to the commands of the program."""
    verb(app, "version", show)

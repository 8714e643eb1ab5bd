"""The command `cafcat version`: its flags and output."""

import typer

from cafcat import __version__
from cafcat.cli.call import Call, verb

__all__ = ["register", "show"]


def show(call: Call) -> None:
    """Print the version.

    Example: cafcat version
    """
    call.output.show({"version": __version__}, [f"cafcat {__version__}"])


def register(app: typer.Typer) -> None:
    """Add `cafcat version` to the commands of the program."""
    verb(app, "version", show)

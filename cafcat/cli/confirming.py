"""Asks before a command destroys something."""

import sys
from typing import Annotated

import typer

from cafcat.cli.call import Call
from cafcat.errors import NotConfirmed

__all__ = ["DryRun", "confirm"]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done; change nothing.")]


def confirm(call: Call, question: str) -> None:
    """Ask the user, after the command has shown what it would do. Return if the answer is yes.

    Args:
        call: The call of the command.
        question: The question, such as "Remove 12 files?".

    Raises:
        NotConfirmed: The answer is another one. Or nobody can be asked: standard input or error output is not a
            terminal, or results are printed as JSON.
    """
    if call.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NotConfirmed("nothing was done, because nobody can be asked", hint="run it again with --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:  # Ctrl-D
        sys.stderr.write("\n")
    if answer.strip().lower() not in ("y", "yes"):
        raise NotConfirmed("nothing was done")

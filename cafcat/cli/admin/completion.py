"""The command `cafcat completion SHELL`, and the answers to the script that it prints."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from cafcat.cli.app import COMPLETION_VARIABLE
from cafcat.cli.call import Call, verb

__all__ = ["answer_shell", "register"]


class Shell(StrEnum):
    """The Unix shells for which typer can write a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    call: Call, shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")]
) -> None:
    """Print the completion script of a shell.

    Example: cafcat completion bash >> ~/.bashrc
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name="cafcat", complete_var=COMPLETION_VARIABLE, shell=shell.value)
    call.output.show({"shell": shell.value, "script": script}, [script])


def answer_shell(command: Any, arguments: Sequence[str]) -> None:
    """Print the possible completions of a command line for the shell's completion script, and raise SystemExit.

    Args:
        command: The program, as a typer command.
        arguments: The words after `cafcat`.
    """
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
    command.main(list(arguments), prog_name="cafcat", complete_var=COMPLETION_VARIABLE)


def register(app: typer.Typer) -> None:
    """Add `cafcat completion` to the commands of the program."""
    verb(app, "completion", completion)

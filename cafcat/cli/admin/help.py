"""The command `cafcat help`."""

from typing import Annotated, Any

import typer

from cafcat.cli.app import app as program
from cafcat.cli.call import Call, verb
from cafcat.errors import InvalidInput

__all__ = ["register"]


def help(
    call: Call,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="VERB", help="A command, such as `ingest` or `db init`.")
    ] = None,
) -> None:
    """Print the help of a command. Default: the list of all commands.

    Example: cafcat help runs show
    """
    context: Any = typer.main.get_command(program).make_context("cafcat", [], resilient_parsing=True)
    for word in words or []:
        below = getattr(context.command, "get_command", None)
        command = None if below is None else below(context, word)
        if command is None:
            name = " ".join([*context.command_path.split()[1:], word])
            raise InvalidInput(f"there is no command `{name}`", hint="`cafcat help` lists the commands")
        context = command.make_context(word, [], parent=context, resilient_parsing=True)
    text = context.command.get_help(context)
    call.output.show({"help": text}, [text])


def register(app: typer.Typer) -> None:
    """Add `cafcat help` to the commands of the program."""
    verb(app, "help", help)

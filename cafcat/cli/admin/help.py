"""The command `cafcat help`."""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from cafcat.cli.app import OF_OTHER_PROGRAMS
from cafcat.cli.app import app as program
from cafcat.cli.call import Call, verb
from cafcat.cli.groups import NEAR
from cafcat.errors import InvalidInput, OutputFailed
from cafcat.support.quantities import plural

__all__ = ["register"]


def help(
    call: Call,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="VERB", help="A command, such as `ingest` or `db init`.")
    ] = None,
    man: Annotated[
        str | None, typer.Option("--man", metavar="FOLDER", help="Write manual pages of all commands into FOLDER.")
    ] = None,
) -> None:
    """Print the help of a command. Default: the list of all commands.

    Example: cafcat help runs show
    """
    if man is not None:
        _write_manual(call, man)
        return
    context: Any = typer.main.get_command(program).make_context("cafcat", [], resilient_parsing=True)
    for word in words or []:
        below = getattr(context.command, "get_command", None)
        command = None if below is None else below(context, word)
        if command is None:
            name = " ".join([*context.command_path.split()[1:], word])
            near = get_close_matches(word, getattr(context.command, "commands", ()), 1, NEAR)
            meant = " ".join([*context.command_path.split()[1:], *near])
            others = f"did you mean `cafcat help {meant}`?" if near else "`cafcat help` lists the commands"
            hint = OF_OTHER_PROGRAMS.get(name, others)
            raise InvalidInput(f"there is no command `{name}`", hint=hint)
        context = command.make_context(word, [], parent=context, resilient_parsing=True)
    text = context.command.get_help(context)
    call.output.show({"help": text}, [text])


def _write_manual(call: Call, folder: str) -> None:
    from cafcat.cli.admin.man import write_pages

    try:
        names = write_pages(typer.main.get_command(program), Path(folder))
    except OSError as error:
        raise OutputFailed(f"cannot write {error.filename}: {error.strerror}") from error
    call.output.show(
        {"folder": str(Path(folder).absolute()), "pages": names}, [f"wrote {plural(len(names), 'page')}"]
    )


def register(app: typer.Typer) -> None:
    """Add `cafcat help` to the commands of the program."""
    verb(app, "help", help)

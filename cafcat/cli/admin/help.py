"""The command `cafcat help`."""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cafcat.cli.app import OF_OTHER_PROGRAMS
from cafcat.cli.app import app as program
from cafcat.cli.call import Call, verb
from cafcat.cli.groups import NEAR, Group
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
        group = context.command
        name = group.own_name(word) if isinstance(group, Group) else word
        command = group.get_command(context, name) if isinstance(group, TyperGroup) else None
        if command is None:
            raise _no_command(context, word)
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
    text = context.command.get_help(context)
    call.output.show({"help": text}, [text])


def _no_command(context: Any, word: str) -> InvalidInput:
    """Return the error for a name that no command has. Its hint names the command that is probably meant."""
    group, before = context.command, context.command_path.split()[1:]
    name = " ".join([*before, word])
    near = get_close_matches(word, getattr(group, "commands", ()), 1, NEAR)
    others = (
        f"did you mean `cafcat help {' '.join([*before, *near])}`?" if near else "`cafcat help` lists the commands"
    )
    hint = group.hint_for(" ".join(["cafcat", *before]), word) if isinstance(group, Group) else None
    return InvalidInput(f"there is no command `{name}`", hint=hint or OF_OTHER_PROGRAMS.get(name, others))


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

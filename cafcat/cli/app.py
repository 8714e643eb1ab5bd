"""The command `cafcat`: its verbs, and the handling of errors."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from cafcat.cli.call import Call, with_shared_options
from cafcat.cli.errors import BROKEN_PIPE, INTERRUPTED
from cafcat.cli.verbs import COMPLETION_VARIABLE, Verbs
from cafcat.errors import InvalidInput, OutputFailed

__all__ = ["app", "run"]

app = typer.Typer(
    name="cafcat",
    cls=Verbs,
    help="Many small files in few large archives; any one of them back by one look-up and one range read.",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(value: bool) -> None:
    if value:
        from cafcat.cli.admin.version import show

        show(Call())
        raise typer.Exit


def _start(
    _call: Call,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None: ...


app.callback()(with_shared_options(_start))


def run(arguments: Sequence[str]) -> int:
    """Run one command, print its error if there is one, and return the exit code."""
    call = Call()
    try:
        _check_current_folder()
        code = _invoke(call, list(arguments))
    except BrokenPipeError:
        code = BROKEN_PIPE
    except KeyboardInterrupt:
        call.output.notice("interrupted")
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last frame: every error becomes one line and a code
        # An error in the arguments themselves comes before these two are known.
        call.json = call.json or "--json" in arguments
        call.debug = call.debug or "--debug" in arguments
        code = call.report(error)
    return _flushed(call, code)


def _check_current_folder() -> None:
    """Raise InvalidInput if the current folder was deleted: relative names have no meaning there."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise InvalidInput("the current folder is gone", hint="cd to another one") from error


def _flushed(call: Call, code: int) -> int:
    """Flush the output, and return the exit code, or that of an output error."""
    try:
        call.output.flush()
    except (BrokenPipeError, OutputFailed) as error:
        # What is still buffered must not be written at exit, where it would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if code == 0:
            return BROKEN_PIPE if isinstance(error, BrokenPipeError) else call.report(error)
    return code


def _invoke(call: Call, arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    if COMPLETION_VARIABLE in os.environ:
        from cafcat.cli.admin.completion import answer_shell

        answer_shell(command, arguments)
    try:
        with command.make_context("cafcat", arguments, obj=call) as context:
            return command.invoke(context) or 0
    except typer.Exit as end:
        return end.exit_code

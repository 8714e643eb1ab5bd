"""The program `cafcat`: the table of its commands, and the function that runs one and returns its exit code."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from cafcat.cli.call import Call, with_shared_options
from cafcat.cli.errors import BROKEN_PIPE, INTERRUPTED
from cafcat.cli.groups import Group
from cafcat.errors import InvalidInput, OutputFailed

__all__ = ["COMPLETION_VARIABLE", "OF_OTHER_PROGRAMS", "app", "run"]

COMPLETION_VARIABLE: Final = "_CAFCAT_COMPLETE"
"""Environment variable that the shell's completion script sets when it runs cafcat to ask for completions."""

_PANELS: Final = {
    "Packing": {
        "ingest": "ingest",
        "limits": "catalog.limits",
        "runs": "catalog.runs",
    },
    "Reading": {
        "get": "reading.get",
        "cat": "reading.get",
        "extract": "reading.extract",
        "ls": "reading.listing",
        "find": "reading.listing",
        "stat": "reading.listing",
        "locate": "reading.listing",
        "du": "reading.du",
        "url": "reading.url",
        "snapshot": "reading.snapshot",
        "mount": "reading.mount",
        "serve": "reading.serve",
        "units": "reading.units",
        "search": "reading.search",
    },
    "Archives": {
        "export": "archives.convert",
        "inspect": "archives.inspect",
        "convert": "archives.convert",
        "adopt": "archives.adopt",
    },
    "Custody": {
        "verify": "custody.verify",
        "repair": "custody.repair",
        "copy": "custody.copy",
        "repack": "custody.repack",
        "rm": "custody.remove",
        "undelete": "custody.remove",
        "prune": "custody.prune",
        "recover": "custody.recover",
        "backup": "catalog.backup",
        "restore": "catalog.backup",
        "rebuild": "catalog.rebuild",
        "compare": "catalog.rebuild",
    },
    "Catalog": {
        "stats": "catalog.runs",
        "chunks": "catalog.chunks",
        "sql": "catalog.sql",
        "query": "catalog.query",
        "db": "catalog.db",
    },
    "Setup": {
        "store": "catalog.store",
        "keys": "catalog.keys",
        "config": "admin.config",
        "doctor": "admin.doctor",
        "completion": "admin.completion",
        "version": "admin.version",
        "help": "admin.help",
    },
}
"""The panels of the help, and in each, the names of its commands with their modules below cafcat.cli."""

_MODULES: Final = {name: module for panel in _PANELS.values() for name, module in panel.items()}


OF_OTHER_PROGRAMS: Final = {
    "add": "`cafcat ingest FOLDER` packs files",
    "check": "`cafcat verify` checks the chunks, and `cafcat db check` the catalog",
    "cp": "`cafcat get` copies files out of their archives, and `cafcat ingest` packs files",
    "create": "`cafcat ingest FOLDER` packs files",
    "dedupe": "`cafcat query duplicates` lists files with the same content",
    "delete": "`cafcat rm` removes files",
    "diff": "`cafcat runs diff RUN LATER_RUN` shows what changed",
    "dump": "`cafcat cat PATH` writes a file to stdout, and `cafcat export -o FILE.tar` a tar",
    "forget": "`cafcat rm` removes files, and `cafcat prune` the chunks that have none any more",
    "history": "`cafcat query history` shows the versions of a file, and `cafcat runs` the ingests",
    "init": "no command is needed: `cafcat ingest FOLDER` makes the catalog and the store",
    "key": "`cafcat keys` manages access keys of the S3 server; archives are not encrypted",
    "list": "`cafcat ls` lists folders, and `cafcat find` files",
    "log": "`cafcat runs` lists the ingests",
    "purge": "`cafcat rm -r FOLDER` removes a folder, and `cafcat prune` the chunks that have no files any more",
    "size": "`cafcat du FOLDER` shows the size of a folder, and `cafcat stats` of the catalog",
    "snapshots": "`cafcat runs` lists the ingests; a catalog has the latest version of each file",
    "status": "`cafcat stats` shows totals, and `cafcat doctor` problems",
    "sync": "`cafcat ingest --delete FOLDER` brings the catalog to the state of a folder",
    "tag": "cafcat has no tags; `cafcat ingest --prefix FOLDER` names the folder of the files",
    "tree": "`cafcat ls -R` lists everything below a folder",
    "unlock": "no command is needed: locks of ended processes end by themselves, and `cafcat recover` cleans up",
}
"""Names of commands in other programs, each with the hint that cafcat prints."""


class Verbs(Group):
    """The group of all commands.

    The module of a command is imported only when the command runs, or when the help or a completion lists it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"commands": dict.fromkeys(_MODULES)})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of the first word. Raises InvalidInput with a hint for names in other programs."""
        if args and (hint := OF_OTHER_PROGRAMS.get(args[0])):
            raise InvalidInput(f"cafcat has no command {args[0]!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as typer calls it
        """Return the command with a name; None if there is no such command.

        Other commands of the same module are not created, because each of them costs about a millisecond.
        """
        if cmd_name in _MODULES and self.commands[cmd_name] is None:
            made = typer.Typer(rich_markup_mode=None)
            import_module(f"cafcat.cli.{_MODULES[cmd_name]}").register(made)
            made.registered_commands = [verb for verb in made.registered_commands if verb.name == cmd_name]
            self.commands[cmd_name] = typer.main.get_group(made).commands[cmd_name]
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands into the help, in panels."""
        for panel, names in _PANELS.items():
            self.write_commands(ctx, formatter, panel, names)


app = typer.Typer(
    name="cafcat",
    cls=Verbs,
    help="Pack many small files into few large archives. One look-up and one range read return any file.",
    add_completion=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
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


app.callback()(with_shared_options(_start, is_program=True))


def run(arguments: Sequence[str]) -> int:
    """Run one command of cafcat, and return its exit code. An error is printed, except if stdout is a closed pipe.

    Args:
        arguments: The words after `cafcat` on the command line.

    Raises:
        SystemExit: The completion script of a shell started cafcat. The completions are printed instead.
    """
    call = Call()
    try:
        _check_current_folder()
        command = typer.main.get_command(app)
        if COMPLETION_VARIABLE in os.environ:
            from cafcat.cli.admin.completion import answer_shell

            answer_shell(command, arguments)
        with command.make_context("cafcat", list(arguments), obj=call) as context:
            code = command.invoke(context) or 0
    except typer.Exit as end:
        code = end.exit_code
    except BrokenPipeError:
        code = BROKEN_PIPE
    except KeyboardInterrupt:
        call.output.notice("interrupted")
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - nothing above handles errors: each becomes one line and an exit code
        # An error in the arguments themselves comes before these two are known.
        call.json = call.json or "--json" in arguments
        call.debug = call.debug or "--debug" in arguments
        code = call.report(error)
    call.report_new_catalog()
    return _measured(call, _flushed(call, code))


def _measured(call: Call, code: int) -> int:
    """Write the file of --metrics-file, and return the exit code of the command.

    If the file cannot be written, the error is printed, and is the result if the command itself succeeded.
    """
    if call.job is None:
        return code
    try:
        call.job.write(code)
    except OutputFailed as error:
        failure = call.report(error)
        return code or failure
    return code


def _check_current_folder() -> None:
    """Raise InvalidInput if the current folder was deleted: relative names have no meaning there."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise InvalidInput("the current folder is gone", hint="cd to another folder") from error


def _flushed(call: Call, code: int) -> int:
    """Flush stdout, and return the exit code of the command.

    If `code` is 0 and stdout cannot be written, the result is the exit code of that error. The error is then
    printed, unless stdout is a pipe that its reader closed.

    Args:
        call: The call of the command.
        code: The exit code of the command so far.
    """
    try:
        call.output.flush()
    except (BrokenPipeError, OutputFailed) as error:
        # What is still buffered must not be written at exit, where it would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if code == 0:
            return BROKEN_PIPE if isinstance(error, BrokenPipeError) else call.report(error)
    return code

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
    "about": "`cafcat stats` shows totals, and `cafcat doctor` free space",
    "add": "`cafcat ingest FOLDER` packs files",
    "cache": "cafcat keeps no cache of archives; `cafcat config` shows its settings",
    "check": "`cafcat verify` checks the chunks, and `cafcat db check` the catalog",
    "checksum": "`cafcat verify --level data` checks all checksums",
    "cleanup": "`cafcat recover` removes what dead commands left, and `cafcat prune` chunks without files",
    "compact": "`cafcat repack` removes dead bytes from chunks, and `cafcat prune` chunks without files",
    "copyto": "`cafcat get PATH -o FILE` copies a file out of its archive",
    "cp": "`cafcat get` copies files out of their archives, and `cafcat ingest` packs files",
    "create": "`cafcat ingest FOLDER` packs files",
    "dedupe": "`cafcat query duplicates` lists files with the same content",
    "delete": "`cafcat rm` removes files",
    "diff": "`cafcat runs diff RUN LATER_RUN` shows what changed",
    "download": "`cafcat get PATH` copies a file, and `cafcat extract FOLDER -C DIR` a folder",
    "dump": "`cafcat cat PATH` writes a file to stdout, and `cafcat export -o FILE.tar` a tar",
    "forget": "`cafcat rm` removes files, and `cafcat prune` the chunks that have none any more",
    "fsck": "`cafcat verify` checks chunks and copies, and `cafcat db check` the catalog",
    "gc": "`cafcat repack` and `cafcat prune` free the space of removed files",
    "grep": "`cafcat search QUERY` searches records of logs, and `cafcat find --name PATTERN` names of files",
    "hashsum": "`cafcat stat PATH` shows the checksum of a file, and `cafcat ls --json` of all files of a folder",
    "history": "`cafcat query history` shows the versions of a file, and `cafcat runs` the ingests",
    "info": "`cafcat stats` shows totals, `cafcat runs show RUN` an ingest, and `cafcat stat PATH` a file",
    "init": "`cafcat ingest FOLDER` makes catalog and store; in a database of your own, run `cafcat db init` first",
    "key": "`cafcat keys` manages access keys of the S3 server; archives are not encrypted",
    "link": "`cafcat url --presign PATH` makes a signed URL of a file in a bucket; `cafcat serve` serves all files",
    "list": "`cafcat ls` lists folders, and `cafcat find` files",
    "listremotes": "`cafcat store ls` lists the stores",
    "log": "`cafcat runs` lists the ingests",
    "lsd": "`cafcat du -d 1` lists folders with their sizes",
    "lsf": "`cafcat ls FOLDER` lists a folder",
    "lsjson": "`cafcat ls --json FOLDER` lists a folder as JSON, one line a file",
    "lsl": "`cafcat ls -l FOLDER` lists a folder with sizes and times",
    "man": "`cafcat help --man FOLDER` writes manual pages, and `cafcat help VERB` shows the help of a command",
    "mb": "make the bucket with the tools of its server; `cafcat store add NAME URL` names a store",
    "md5sum": "`cafcat stat PATH` shows the checksum of a file (CRC-32C); cafcat stores no MD5",
    "mkdir": "folders need no command: `cafcat ingest` makes them with the files",
    "move": "`cafcat store move` enters the new place of a store; files keep the paths of their ingest",
    "moveto": "`cafcat store move` enters the new place of a store; files keep the paths of their ingest",
    "mv": "`cafcat store move` enters the new place of a store; files keep the paths of their ingest",
    "ncdu": "`cafcat du --ncdu` writes a file for ncdu",
    "presign": "`cafcat url --presign PATH` makes a signed URL of a file in a bucket",
    "purge": "`cafcat rm -r FOLDER` removes a folder, and `cafcat prune` the chunks that have no files any more",
    "put": "`cafcat ingest FILE` packs a file",
    "rcat": "`cafcat ingest -` packs a tar stream; write another stream to a file first",
    "rebuild-index": "`cafcat rebuild` makes a lost catalog again from its stores",
    "remove": "`cafcat rm` removes files",
    "rmdir": "`cafcat rm -r FOLDER` removes a folder with its files",
    "self-update": "install the new version over this one, then run `cafcat db upgrade`: docs/tasks/upgrading.md",
    "sha1sum": "`cafcat stat PATH` shows the checksum of a file (CRC-32C); cafcat stores no SHA-1",
    "share": "`cafcat url --presign PATH` signs a URL of a file in a bucket; `cafcat serve` serves all files",
    "size": "`cafcat du FOLDER` shows the size of a folder, and `cafcat stats` of the catalog",
    "snapshots": "--as-of TIME reads older versions; `cafcat query history` lists those of a file",
    "start": "no command is needed: commands start the embedded database; `cafcat serve` serves files",
    "status": "`cafcat stats` shows totals, and `cafcat doctor` problems",
    "stop": "`cafcat db stop` stops the embedded database",
    "sync": "`cafcat ingest --delete FOLDER` brings the catalog to the state of a folder",
    "tag": "cafcat has no tags; `cafcat ingest --prefix FOLDER` names the folder of the files",
    "test": "`cafcat verify` checks chunks and copies, and `cafcat doctor` the installation",
    "touch": "cafcat changes no files in place: change the original, and run `cafcat ingest` again",
    "tree": "`cafcat ls -R` lists everything below a folder",
    "umount": "`fusermount3 -u FOLDER`, or Ctrl-C in its terminal, ends `cafcat mount`",
    "unlock": "no command is needed: locks of ended processes end by themselves, and `cafcat recover` cleans up",
    "unmount": "`fusermount3 -u FOLDER`, or Ctrl-C in its terminal, ends `cafcat mount`",
    "upgrade": "`cafcat db upgrade` brings the database to the schema of this version",
    "upload": "`cafcat ingest FOLDER` packs a folder",
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
        call.json = call.json or "--json" in arguments
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

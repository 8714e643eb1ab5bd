"""One call of the program `cafcat`, and the options that all its commands share.

The shared options are declared once, and added to the program, every group and every command: `--json` is allowed
before and after the name of the command.
"""

import copy
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer
from typer.core import TyperGroup

from cafcat.cli.errors import USAGE, describe
from cafcat.cli.groups import Group, ListGroup, Panels, verb_class
from cafcat.cli.output import Output
from cafcat.errors import CatalogUnavailable, InvalidInput, NotFound

if TYPE_CHECKING:
    from cafcat.cli.job_metrics import JobMetrics
    from cafcat.packed_files import PackedFiles
    from cafcat.repository import Repository
    from cafcat.settings.database import Database
    from cafcat.settings.settings import Settings

__all__ = ["Call", "group", "verb", "with_shared_options"]


def _shared(
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print results as JSON on stdout, errors as JSON on stderr.")
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Print no progress and, without --json, no summary and no warnings."),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print more details.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the Python traceback of an error.")] = False,
    home: Annotated[
        str | None,
        typer.Option("--home", metavar="DIR", help="Folder of the embedded database and the default store."),
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option("--database-url", metavar="URL", help="Postgres database to use instead of the embedded one."),
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="Store for new chunks: a folder, URL or name.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Configuration file (TOML).")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="Profile in the configuration file.")
    ] = None,
    lock_timeout: Annotated[
        str | None,
        typer.Option("--lock-timeout", metavar="TIME", help="Longest wait for another writer, such as 30s or 0."),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            "--bandwidth",
            metavar="RATE",
            help="Most bytes per second from, and to, remote sources and stores: 100MB/s.",
        ),
    ] = None,
    metrics_file: Annotated[
        str | None,
        typer.Option("--metrics-file", metavar="FILE", help="Write metrics of this command for Prometheus."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Read the primary database, not a read replica.")] = False,
) -> None:
    """Declare the shared options as parameters. This function is never called.

    `with_shared_options` adds these parameters to commands and groups; `--lock-timeout` only with `commits`,
    `--bandwidth` only with `moves`, `--fresh` only with `reads`, `--metrics-file` only with `measured`.
    """


_DATABASE_FOLDER: Final = "postgres"
"""Name of the folder of the embedded database, in the home."""

_SHARED: Final = dict(inspect.signature(_shared).parameters)
_OF_EVERY_COMMAND: Final = (
    "json",
    "quiet",
    "verbose",
    "debug",
    "home",
    "database_url",
    "store",
    "config",
    "profile",
)
_OF_BANDWIDTH: Final = dict.fromkeys(
    ("--bwlimit", "--limit-upload", "--limit-download"), "--bandwidth RATE, such as 10MB/s, limits all transfers"
)
"""Hints for options of other programs, for the commands that move much data."""

_EPILOG: Final = "`cafcat --help` has the options of every command, such as --json, --quiet and --database-url."


def _hidden(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return the parameter of an option so that a help does not show the option."""
    kind, option = get_args(parameter.annotation)
    option = copy.copy(option)
    option.hidden = True
    return parameter.replace(annotation=Annotated[kind, option])


class Call:
    """Shared options, output and repository of one call of cafcat: the first argument of every command's function.

    Attributes:
        output: Prints on stdout and stderr.
        quiet: True with --quiet.
        verbose: True with --verbose.
        debug: True with --debug.
        fresh: True with --fresh.
        job: Counts the work of the command with --metrics-file; else None.
    """

    def __init__(self) -> None:
        self.output = Output()
        self.quiet = self.verbose = self.debug = self.fresh = False
        self._flags: dict[str, Any] = {}
        self._settings: Settings | None = None
        self._new_home: Path | None = None
        self.job: JobMetrics | None = None

    @property
    def json(self) -> bool:
        """True if results are printed as JSON."""
        return self.output.as_json

    @json.setter
    def json(self, value: bool) -> None:
        self.output.as_json = value

    def accept(self, values: dict[str, Any]) -> None:
        """Move the values of shared options out of `values`, and remember those that were given.

        This is called first with the options before the command's name, then with those after it. If an option is
        given twice, the later value counts.
        """
        for name in _SHARED:
            value = values.pop(name, None)
            if value is True:
                setattr(self, name, True)
            elif value is not None and value is not False:
                self._flags[name] = value

    def settings(self) -> "Settings":
        """Return the settings from flags, environment, configuration file and defaults. They are loaded once.

        Raises:
            InvalidInput: A setting is invalid, or the configuration file cannot be read.
        """
        from cafcat.settings.settings import Settings

        if self._settings is None:
            self._settings = settings = Settings.load(**self._flags)
            is_named = settings.database_url is None and not settings.has_default_home
            if is_named and not (settings.home / _DATABASE_FOLDER).is_dir():
                self._new_home = settings.home
        return self._settings

    def report_new_catalog(self) -> None:
        """Print a notice if the command made a catalog in a home that the user named: its name may be mistyped."""
        if self._new_home is None or not (self._new_home / _DATABASE_FOLDER).is_dir() or self.quiet:
            return
        self.output.notice(f"made a new catalog in {self.output.shown(str(self._new_home))}, which had none")

    def require_home(self) -> None:
        """Check that there can be a catalog. Commands that have nothing to do in a new catalog call this.

        Without this check, a mistyped home would look like an empty catalog.

        Raises:
            CatalogUnavailable: The embedded database is used, and its home does not exist.
        """
        settings = self.settings()
        if settings.database_url is None and not settings.home.is_dir():
            hint = (
                "check --home and CAFCAT_HOME; `cafcat ingest FOLDER` makes a new catalog, and "
                "`cafcat rebuild STORE` makes a lost one again"
            )
            raise CatalogUnavailable(f"there is no catalog in {settings.home}", hint=hint)

    def repository(self, *, makes_catalog: bool = True) -> "Repository":
        """Return a new repository for a `with` statement. It connects to the database at its first query.

        Args:
            makes_catalog: False for a command that has nothing to do in a new, empty catalog.

        Raises:
            CatalogUnavailable: The embedded database is used, its home does not exist, and `makes_catalog` is
                false.
        """
        from cafcat.repository import Repository

        if not makes_catalog:
            self.require_home()
        return Repository(self.settings(), self.warn)

    def files(self) -> "PackedFiles":
        """Return a new repository with reading methods only, for commands that only read.

        The repository connects to the database at its first query. Use it in a `with` statement.

        Raises:
            CatalogUnavailable: The embedded database is used, and its home does not exist.
        """
        from cafcat.packed_files import PackedFiles

        self.require_home()
        repository = PackedFiles(self.settings(), self.warn)
        return repository.fresh() if self.fresh else repository

    @contextmanager
    def reading(self) -> Iterator["PackedFiles"]:
        """Yield the repository for a command that reads files by name.

        If the `with` block raises NotFound, and the catalog seems to be lost (`warn_if_lost`), a warning with the
        remedies is printed first. NotFound is raised in any case.
        """
        with self.files() as repository, self.explaining(repository):
            yield repository

    @contextmanager
    def explaining(self, repository: "PackedFiles") -> Iterator[None]:
        """Explain a NotFound of the `with` block as `reading` does."""
        try:
            yield
        except NotFound as error:
            from cafcat.cli.reading.lost import warn_if_lost
            from cafcat.cli.reading.missing_names import explain_missing, hint_to_find

            warn_if_lost(self, repository.session)
            explain_missing(repository, error)
            hint_to_find(error)
            raise

    def database(self) -> "Database":
        """Return the database of the settings, for `cafcat db` and psql. It is not connected yet."""
        from cafcat.settings.database import Database

        return Database(self.settings())

    def warn(self, message: str) -> None:
        """Print a warning on stderr.

        With --json it is a JSON document, also with --quiet. Without --json it is text, which --quiet suppresses.
        """
        if self.json:
            self.output.error_document({"warning": message})
        elif not self.quiet:
            self.output.notice(f"warning: {message}")

    def note(self, message: str) -> None:
        """Print a note about a result on stderr, such as that a list is empty; not with --json or --quiet."""
        if not self.json and not self.quiet:
            self.output.notice(message)

    def summarize(self, document: Mapping[str, Any], lines: Iterable[str], failed: Iterable[str] = ()) -> None:
        """Print the result of a command.

        Args:
            document: The result as printed with --json, also with --quiet.
            lines: The result as printed for people; not printed with --quiet.
            failed: Messages about failures, printed on stderr even with --quiet. With --json they are not printed,
                because `document` contains them.
        """
        if not self.json:
            for message in failed:
                self.output.notice(message)
        if self.json or not self.quiet:
            self.output.show(document, lines)

    def report(self, error: Exception) -> int:
        """Print an error on stderr, and return its exit code. With --debug, its traceback is printed first."""
        if self.debug:
            traceback.print_exception(error)
        shown = describe(error)
        if self.json:
            self.output.error_document({"error": shown.document})
        else:
            self.output.notice(shown.text)
        return shown.code


def with_shared_options(
    function: Callable[..., int | None],
    store: str | None = None,
    *,
    commits: bool = False,
    moves: bool = False,
    reads: bool = False,
    measured: bool = False,
    is_group: bool = False,
    is_program: bool = False,
) -> Callable[..., int | None]:
    """Return the function of a command in the form that typer calls, with the shared options added.

    If the second parameter of `function` is `options`, annotated with the options of an operation, the command also
    gets their arguments and flags (`parameters_of`). Without a command, the program prints its help, as `cafcat
    help` does. A group without a function of its own prints its help on stderr (with --json, an error), and ends
    with exit code 2.

    Args:
        function: The function of the command. Its first parameter is a Call; it returns the exit code; None is 0.
        store: Help text of `--store` for this command; None if `--store` is the store of new chunks.
        commits: True for a command that writes to the catalog and may wait for another writer: it gets
            `--lock-timeout`.
        moves: True for a command that moves much data: it gets `--bandwidth`.
        reads: True for a command that looks up or lists files, on a read replica if there is one: it gets
            `--fresh`.
        measured: True for a long command, which cron jobs run: it gets `--metrics-file`.
        is_group: True for a group of commands whose `function` runs if no command of it is named.
        is_program: True for the program itself, whose help shows the options of every command.
    """
    shared = dict(_SHARED)
    if not is_program:
        shared |= {name: _hidden(shared[name]) for name in _OF_EVERY_COMMAND}
    if store is not None:
        help_of_store = typer.Option("--store", metavar="URL", help=store)
        shared["store"] = shared["store"].replace(annotation=Annotated[str | None, help_of_store])
    if not commits:
        del shared["lock_timeout"]
    if not moves:
        del shared["bandwidth"]
    if not reads:
        del shared["fresh"]
    if not measured:
        del shared["metrics_file"]
    _, *own = inspect.signature(function).parameters.values()
    options, from_operation = None, []
    if own and own[0].name == "options":
        from cafcat.cli.operation import options_of, parameters_of

        options = own.pop(0).annotation
        from_operation = parameters_of(options)

    def run(context: typer.Context, **values: Any) -> int | None:
        call: Call = context.obj
        if (file := values.pop("metrics_file", None)) is not None:
            from cafcat.cli.job_metrics import JobMetrics

            call.job = JobMetrics(file, context.command_path.partition(" ")[2])
        call.accept(values)
        if isinstance(context.command, TyperGroup):
            if is_group and context.invoked_subcommand is not None:
                return None
            if is_program and context.invoked_subcommand is None:
                call.output.show({"help": context.get_help()}, [context.get_help()])
                return None
            if not is_group and context.invoked_subcommand is None:
                if call.json:
                    program = context.command_path
                    raise InvalidInput(f"`{program}` needs a command", hint=f"see {program} --help")
                typer.echo(context.get_help(), err=True)
                raise typer.Exit(USAGE)
        if options is None:
            return function(call, **values)
        given = {parameter.name: values.pop(parameter.name) for parameter in from_operation}
        return function(call, options_of(call, options, given), **values)

    first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [first, *from_operation, *own, *shared.values()]
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def verb(
    app: typer.Typer,
    name: str,
    function: Callable[..., int | None],
    *,
    store: str | None = None,
    commits: bool = False,
    moves: bool = False,
    reads: bool = False,
    measured: bool = False,
    panels: Panels | None = None,
    hints: Mapping[str, str] | None = None,
) -> None:
    """Add a command to a typer application, with the shared options.

    Args:
        app: The application, or a group of commands.
        name: Name of the command.
        function: The function of the command. Its first parameter is a Call; it returns the exit code; None is 0.
        store: Help text of `--store` for this command; None if `--store` is the store of new chunks.
        commits: True for a command that writes to the catalog and may wait for another writer: it gets
            `--lock-timeout`.
        moves: True for a command that moves much data: it gets `--bandwidth`.
        reads: True for a command that looks up or lists files, on a read replica if there is one: it gets
            `--fresh`.
        measured: True for a long command, which cron jobs run: it gets `--metrics-file`.
        panels: Panels of the help, for a command with many options. None: all options are in one list.
        hints: Hints for wrong usage, as other programs have it: by option, or "" for an argument of a command that
            takes none.
    """
    shared = with_shared_options(function, store, commits=commits, moves=moves, reads=reads, measured=measured)
    hints = {**(_OF_BANDWIDTH if moves else {}), **(hints or {})}
    app.command(name, cls=verb_class(panels or {}, hints), epilog=_EPILOG)(shared)


def group(app: typer.Typer, name: str, help: str, alone: Callable[..., int | None] | None = None) -> typer.Typer:
    """Add a group of commands, such as `chunks` with `ls` and `show`, to a typer application.

    Args:
        app: The application.
        name: Name of the group.
        help: Help text of the group.
        alone: The function of a call without a command of the group. Its first parameter is a Call. None: such a
            call prints the help.

    Returns:
        The group, which has no commands yet.
    """
    kind = Group if alone is None else ListGroup
    below = typer.Typer(cls=kind, help=help, epilog=_EPILOG, invoke_without_command=True, rich_markup_mode=None)
    below.callback()(with_shared_options(alone or (lambda _call: None), is_group=alone is not None))
    app.add_typer(below, name=name)
    return below

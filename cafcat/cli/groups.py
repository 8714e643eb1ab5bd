"""How the help shows commands: whole summaries, and panels of options."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from cafcat.errors import InvalidInput

__all__ = ["NEAR", "Group", "ListGroup", "Panels", "Verb", "verb_class"]

Panels = Mapping[str, Sequence[str]]
"""Titles of panels in the help of a command, and the names of the parameters in each."""

_RUNNING: Final = (
    "jobs",
    "cluster",
    "share_password",
    "lock_timeout",
    "bandwidth",
    "metrics_file",
    "fresh",
)
"""Parameters of several commands. They come last, in a panel of their own."""


_MISSING_OPTION: Final = "Missing option"
"""Beginning of typer's message about an option that a command needs."""
_EXTRA_ARGUMENTS: Final = "Got unexpected extra argument"
"""Beginning of typer's message about an argument that a command does not take."""

NEAR: Final = 0.75
"""Least similarity, from 0 to 1, of a typing error and the name that is meant: of --sotre and --store."""


class Verb(TyperCommand):
    """A command whose help shows its options in panels.

    Attributes:
        panels: The panels. Options that no panel has come before the panels.
        hints: Hints for options of other programs, by option; "" for an argument that the command does not take.
    """

    panels: ClassVar[Panels] = {}
    hints: ClassVar[Mapping[str, str]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create the command as typer does. Errors about a value then name the option."""
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            if (
                parameter.param_type_name == "option"
                and (parse := getattr(parameter.type, "func", None)) is not None
            ):
                parameter.type.func = _naming(parse, parameter.opts[0])  # type: ignore[attr-defined]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises InvalidInput with a hint for those of other programs."""
        given = tuple(args)  # the list gets shorter while it is parsed
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            message = error.format_message()
            option = getattr(error, "option_name", "" if message.startswith(_EXTRA_ARGUMENTS) else None)
            missing = getattr(error, "param", None) if message.startswith(_MISSING_OPTION) else None
            option = missing.opts[0] if missing is not None else option
            hint = None if option is None else self.hints.get(option)
            if hint is None and option and any(_is_name_like(arg, option) for arg in given):
                hint = "write -- before names that begin with a dash"
            if hint is None:
                _drop_poor_guesses(error, option)
                raise
            raise InvalidInput(message.partition(" (Possible")[0].rstrip("."), hint=hint) from error

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 - as typer calls it
        """Return the first sentence of the help, which completions show. Typer itself cuts it."""
        return _first_sentence(self)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options into the help."""
        panels = {**self.panels, "Running": _RUNNING} if self.panels else {}
        panel_of = {name: title for title, names in panels.items() for name in names}
        records: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Arguments", "Options", *panels)}
        for parameter in self.get_params(ctx):
            is_argument = parameter.param_type_name == "argument"
            title = "Arguments" if is_argument else panel_of.get(parameter.name or "", "Options")
            if (record := parameter.get_help_record(ctx)) is not None:
                records[title].append(record)
        for title, shown in records.items():
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)


def _naming(parse: Callable[[str], Any], option: str) -> Callable[[str], Any]:
    """Return a function that parses the value of an option, and names the option in an error."""

    def parsed(value: str) -> Any:
        try:
            return parse(value)
        except InvalidInput as error:
            raise InvalidInput(f"{option}: {error.message}", hint=error.hint) from error

    return parsed


def _drop_poor_guesses(error: typer.TyperException, option: str | None) -> None:
    """Remove guesses from an error that are far from the unknown option: --store for --target."""
    guesses = getattr(error, "possibilities", None)
    if guesses and option:
        near = [guess for guess in guesses if SequenceMatcher(None, guess, option).ratio() >= NEAR]
        error.possibilities = near  # type: ignore[attr-defined]


def _is_name_like(argument: str, option: str) -> bool:
    """Return True if an argument from which an option was read looks like the name of a file: "-dash.txt"."""
    return len(option) == 2 and argument.startswith(option) and not argument[1:].isalnum()


def verb_class(panels: Panels, hints: Mapping[str, str]) -> type[Verb]:
    """Return the class of a command whose help has these panels, and whose errors have these hints."""
    return type("Verb", (Verb,), {"panels": panels, "hints": hints})


_SAME: Final = {"ls": ("list",), "list": ("ls",), "rm": ("remove", "revoke"), "remove": ("rm", "revoke")}
"""Names of commands that mean the same: groups have one of them, and accept the others."""

_INSTEAD: Final = {
    "chunks rm": "`cafcat rm` removes files, and `cafcat prune` chunks that have no files any more",
    "db migrate": "`cafcat db upgrade` brings the database to the schema of this version",
    "db reset": "`cafcat db init` prepares an empty database",
}
"""Hints for names that groups do not have, by group and name."""


class Group(TyperGroup):
    """A group of commands. Typer itself cuts their summaries to one line.

    Attributes:
        is_list: True if the group without a command shows a list.
    """

    is_list: ClassVar[bool] = False

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 - as typer calls it
        """Return the first sentence of the help, which completions show."""
        return _first_sentence(self)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of the first word, which may be another name of it (_SAME)."""
        name = self.own_name(args[0]) if args else ""
        if name not in self.commands and (hint := self.hint_for(ctx.command_path, name)) is not None:
            raise InvalidInput(f"`{ctx.command_path}` has no command {name!r}", hint=hint)
        return super().resolve_command(ctx, [name, *args[1:]] if args else args)

    def own_name(self, name: str) -> str:
        """Return the name that this group has for a command, which users may call differently."""
        known = [same for same in (name, *_SAME.get(name, ())) if same in self.commands]
        return known[0] if known else name

    def hint_for(self, program: str, name: str) -> str | None:
        """Return a hint for a name that no command has: that of a list, or a number. None if there is no hint.

        Args:
            program: The words that call this group: "cafcat runs".
            name: The name.
        """
        if self.is_list and name in ("ls", "list"):
            return f"`{program}` shows the list"
        if name.isdigit() and "show" in self.commands:
            return f"`{program} show {name}` shows number {name}"
        return _INSTEAD.get(f"{self.name} {name}")

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands into the help."""
        self.write_commands(ctx, formatter, "Commands", self.commands)

    def write_commands(self, ctx: Any, formatter: Any, title: str, names: Iterable[str]) -> None:
        """Write some of the commands into the help, below a title. Long sentences are wrapped."""
        with formatter.section(title):
            formatter.write_dl([(name, _first_sentence(self.get_command(ctx, name))) for name in names])


class ListGroup(Group):
    """A group of commands that shows a list if it is called without a command, such as `cafcat runs`."""

    is_list: ClassVar[bool] = True


def _first_sentence(command: Any) -> str:
    return " ".join((command.help or "").split()).partition(". ")[0].removesuffix(".") + "."

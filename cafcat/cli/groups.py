"""How the help shows commands: whole summaries, and panels of options."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from typer.core import TyperCommand, TyperGroup

from cafcat.errors import InvalidInput

__all__ = ["Group", "ListGroup", "Panels", "Verb", "verb_with_panels"]

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


class Verb(TyperCommand):
    """A command whose help shows its options in panels.

    Attributes:
        panels: The panels. Options that no panel has come before the panels.
    """

    panels: ClassVar[Panels] = {}

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


def verb_with_panels(panels: Panels) -> type[Verb]:
    """Return the class of a command whose help has these panels."""
    return type("Verb", (Verb,), {"panels": panels})


_LISTS: Final = {"ls": "list", "list": "ls"}
"""Two names of the same command: groups have one of them, and accept both."""


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
        """Find the command of the first word. `ls` and `list` mean the same, or the group without a command."""
        name = args[0] if args else ""
        if name in _LISTS and name not in self.commands:
            if _LISTS[name] in self.commands:
                return super().resolve_command(ctx, [_LISTS[name], *args[1:]])
            if self.is_list:
                hint = f"`{ctx.command_path}` shows the list"
                raise InvalidInput(f"`{ctx.command_path}` has no command {name!r}", hint=hint)
        return super().resolve_command(ctx, args)

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

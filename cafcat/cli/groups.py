"""A group of commands, whose help shows the first sentence of each command as a whole."""

from collections.abc import Iterable
from typing import Any

from typer.core import TyperGroup

__all__ = ["Group"]


class Group(TyperGroup):
    """A group of commands. Typer itself cuts their summaries to one line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands into the help."""
        self.write_commands(ctx, formatter, "Commands", self.commands)

    def write_commands(self, ctx: Any, formatter: Any, title: str, names: Iterable[str]) -> None:
        """Write some of the commands into the help, below a title. Long sentences are wrapped."""
        with formatter.section(title):
            formatter.write_dl([(name, _first_sentence(self.get_command(ctx, name))) for name in names])


def _first_sentence(command: Any) -> str:
    return " ".join((command.help or "").split()).partition(". ")[0].removesuffix(".") + "."

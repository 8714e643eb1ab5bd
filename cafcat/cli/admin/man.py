"""Manual pages for man(1), made of the help of the commands: `cafcat help --man FOLDER`."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cafcat import __version__

__all__ = ["pages", "write_pages"]


def write_pages(program: Any, folder: Path) -> list[str]:
    """Write a manual page for the program and for each of its commands into a folder, and return their names.

    Args:
        program: The program, as typer makes it.
        folder: The folder. It is created if it is missing.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for name, text in pages(program):
        (folder / name).write_text(text, encoding="utf-8")
        names.append(name)
    return names


def pages(program: Any) -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of each page. `cafcat db init` has the page cafcat-db-init.1.

    Args:
        program: The program, as typer makes it.
    """
    context = program.make_context("cafcat", [], resilient_parsing=True)
    yield from _pages_of(context)


def _pages_of(context: Any) -> Iterator[tuple[str, str]]:
    name = context.command_path.replace(" ", "-")
    yield f"{name}.1", "\n".join(_lines(context, name)) + "\n"
    command = context.command
    for word in getattr(command, "list_commands", lambda _: ())(context):
        below = command.get_command(context, word)
        yield from _pages_of(below.make_context(word, [], parent=context, resilient_parsing=True))


def _lines(context: Any, name: str) -> Iterator[str]:
    summary, *paragraphs = re.split(r"\n\s*\n", (context.command.help or "").strip())
    examples = [text.removeprefix("Example: ") for text in paragraphs if text.startswith("Example: ")]
    today = datetime.now(UTC).date().isoformat()
    yield f'.TH "{name.upper()}" "1" "{today}" "cafcat {__version__}" "User Commands"'
    yield from (".SH NAME", rf"{_text(name)} \- {_text(_first_sentence(summary))}")
    yield from (".SH SYNOPSIS", f".B {_text(context.command_path)}", _text(" ".join(_usage(context))))
    yield from (".SH DESCRIPTION", _text(summary))
    for paragraph in paragraphs:
        if not paragraph.startswith("Example: "):
            yield from (".PP", _text(paragraph))
    parameters = [record for p in context.command.get_params(context) if (record := p.get_help_record(context))]
    for title, records in (("OPTIONS", parameters), ("COMMANDS", _commands(context))):
        if records:
            yield f".SH {title}"
        for term, text in records:
            yield from (".TP", f".B {_text(term)}", _text(text or ""))
    if examples:
        yield ".SH EXAMPLES"
        for n, example in enumerate(examples):
            yield from (*([".PP"] if n else []), ".nf", _text(example), ".fi")
    yield from (".SH SEE ALSO", ".BR cafcat (1)")


def _usage(context: Any) -> list[str]:
    return list(context.command.collect_usage_pieces(context))


def _commands(context: Any) -> list[tuple[str, str]]:
    command = context.command
    names = getattr(command, "list_commands", lambda _: ())(context)
    return [(name, _first_sentence(command.get_command(context, name).help or "")) for name in names]


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].removesuffix(".")


def _text(text: str) -> str:
    """Return a text in one line, escaped for roff (groff_man(7)): backslashes, hyphens, and dots at its start."""
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped

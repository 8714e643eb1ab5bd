"""docs/cli.md documents exactly the existing verbs, options, exit codes and keys."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from cafcat import errors
from cafcat.cli.app import app
from cafcat.cli.errors import EXIT_CODES, describe
from cafcat.model import Chunk, ChunkState, Run, Stats
from cafcat.operations.convert.run import ConvertReport
from cafcat.operations.export.run import ExportReport
from cafcat.reports import ExtractReport, IngestReport
from cafcat.settings.settings import KEYS

TEXT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
SHARED = TEXT.split("## Options of every verb")[1].split("\n## ")[0]


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every verb by its full name. Groups of verbs are not verbs."""
    below = getattr(command, "commands", {})
    for word in below:
        yield from commands(command.get_command(None, word), f"{name} {word}")
    if not below or name == "cafcat runs":  # a group that is a verb, too
        yield name, command


ROOT = typer.main.get_command(app)
VERBS = dict(commands(ROOT, "cafcat"))


def options(command: Any) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts if name.startswith("-")}


def section(name: str) -> str:
    found = re.search(rf"^### {re.escape(name)}\n(.*?)(?=^##)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"docs/cli.md has no section {name}"
    return found[1]


def documented_options(text: str) -> set[str]:
    spans = re.findall(r"`(--?[A-Za-z0-9][a-z0-9-]*)", text)
    return {span for span in spans if span == "-0" or not re.match(r"-\d", span)}


@pytest.mark.parametrize("name", VERBS)
def test_every_option_of_a_verb_is_documented_and_exists(name: str) -> None:
    shared = options(ROOT) - {"--version"}
    own = options(VERBS[name]) - shared
    text = section(name)
    assert own <= documented_options(text)
    assert documented_options(text) <= options(VERBS[name])


def test_shared_options_are_documented_and_every_verb_has_them() -> None:
    shared = options(ROOT) - {"--version"}
    assert documented_options(SHARED) == shared | {"--help", "-h"}
    for name, command in VERBS.items():
        assert shared <= options(command), name
        assert command.help, name


def test_every_section_is_a_verb() -> None:
    assert set(re.findall(r"^### (cafcat .*)$", TEXT, re.MULTILINE)) == set(VERBS)


def test_exit_codes_are_documented() -> None:
    rows = re.findall(r"^\| (\d+) \| .*? \| (.*) \|$", TEXT.split("## Exit codes")[1], re.MULTILINE)
    documented = {kind: int(code) for code, kinds in rows for kind in re.findall(r"`(\w+)`", kinds)}
    classes = [errors.CafcatError, *_below(errors.CafcatError)]
    expected = {kind.kind: describe(kind("x")).code for kind in classes}
    assert documented == EXIT_CODES | expected


def _below(error: type[errors.CafcatError]) -> Iterator[type[errors.CafcatError]]:
    for child in error.__subclasses__():
        if child.__module__.startswith("cafcat.serve."):
            continue  # the answer to a request, never the end of a command
        yield child
        yield from _below(child)


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        ("`ingest`", IngestReport),
        ("`extract`", ExtractReport),
        ("`export`", ExportReport),
        ("`convert`", ConvertReport),
        ("`chunks ls`, `chunks show`", Chunk),
        ("`runs`", Run),
        ("`stats`", Stats),
    ],
)
def test_json_keys_are_documented(verb: str, kind: type) -> None:
    row = next(
        line for line in TEXT.splitlines() if line.startswith(f"| {verb} |") and "`" in line[len(verb) + 4 :]
    )
    names = {field.name for field in fields(kind)} if is_dataclass(kind) else set(kind._fields)  # type: ignore[attr-defined]
    assert names <= set(re.findall(r"`(\w+)`", row))


def test_settings_and_states_are_documented() -> None:
    for key in (*KEYS, "config", "profile"):
        assert f"`CAFCAT_{key.upper()}`" in TEXT
        assert f"`--{key.replace('_', '-')}`" in TEXT
    assert all(f"`{state}`" in section("cafcat chunks ls") for state in ChunkState)

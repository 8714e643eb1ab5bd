"""The help of every command has a true example, and becomes a manual page."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from cafcat.cli.admin.man import pages
from cafcat.cli.app import app
from tests.docs.test_cli_documented import VERBS

PROGRAM: Any = typer.main.get_command(app)
PAGES = dict(pages(PROGRAM))


@pytest.mark.parametrize("name", VERBS)
def test_the_example_of_a_command_can_be_parsed(name: str) -> None:
    lines = re.findall(r"^Example: (.+)$", VERBS[name].help or "", re.MULTILINE)
    examples = [re.sub(r'^psql "\$\((.+)\)"$', r"\1", line) for line in lines]
    assert examples, f"{name} has no example"
    for example in examples:
        words = shlex.split(example.partition("|")[0].partition(">")[0])[1:]
        context = PROGRAM.make_context("cafcat", words)
        called = "cafcat"
        while hasattr(context.command, "get_command") and (rest := [*context._protected_args, *context.args]):
            command = context.command.get_command(context, rest[0])
            called += f" {rest[0]}"
            context = command.make_context(rest[0], rest[1:], parent=context)
        assert called == name


@pytest.mark.parametrize("name", VERBS)
def test_the_panels_of_a_help_have_parameters_of_the_command(name: str) -> None:
    command = VERBS[name]
    panels = getattr(command, "panels", {})
    names = [parameter for of_panel in panels.values() for parameter in of_panel]
    assert set(names) <= {parameter.name for parameter in command.params}
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", VERBS)
def test_a_long_help_has_panels(name: str) -> None:
    command: Any = VERBS[name]
    context = command.make_context(name, [], resilient_parsing=True)
    shown = [p for p in command.get_params(context) if p.get_help_record(context) is not None]
    assert len(shown) <= 14 or command.panels


def test_a_group_names_the_help_with_the_shared_options() -> None:
    program = PROGRAM.make_context("cafcat", [], resilient_parsing=True)
    group = PROGRAM.get_command(program, "chunks").make_context(
        "chunks", [], parent=program, resilient_parsing=True
    )
    assert "`cafcat --help` has the options of every command" in group.get_help()


def test_completions_show_whole_sentences() -> None:
    for name, command in VERBS.items():
        assert command.get_short_help_str().endswith("."), name
        assert "..." not in command.get_short_help_str(), name


def test_every_command_has_a_manual_page() -> None:
    assert {name.replace(" ", "-") + ".1" for name in VERBS} <= set(PAGES)
    assert ".SH EXAMPLES" in PAGES["cafcat-get.1"]
    assert "\\-\\-json" in PAGES["cafcat.1"]
    assert "\\-\\-json" not in PAGES["cafcat-get.1"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_finds_nothing_to_warn_of(tmp_path: Path) -> None:
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = ["groff", "-man", "-ww", "-Tutf8", "-z", *sorted(str(path) for path in tmp_path.iterdir())]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""

"""Commands of cafcat that start early and wait for a signal, so that several begin their work at once."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.worlds.commands import Command
from tests.worlds.waiting import PATIENCE_SECONDS

__all__ = ["environment", "popen", "run", "start_all"]

_WAITING = """
import sys
import cafcat.cli.app, cafcat.operations.ingest.run, cafcat.operations.recover.run
print("ready", flush=True)
sys.stdin.readline()
from cafcat.__main__ import main
main()
"""


def environment(folder: Path, store: str, further: Mapping[str, str]) -> dict[str, str]:
    """Return variables for a store, and a home in this folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CAFCAT_")}
    return kept | {"CAFCAT_HOME": str(folder / "home"), "CAFCAT_STORE": store} | dict(further)


def popen(folder: Path, variables: Mapping[str, str], *arguments: str) -> Command:
    """Start a command that prints "ready", and begins its work with the first line on its standard input."""
    return Command(arguments, cwd=folder, env=variables, program=_WAITING, text=True)


def start_all(processes: "Sequence[subprocess.Popen[str]]") -> None:
    """Let all processes begin their work, once all of them have started."""
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()


def run(folder: Path, variables: Mapping[str, str], *arguments: str) -> None:
    """Run a command that must succeed."""
    process = popen(folder, variables, *arguments)
    _, errors = process.communicate("\n", timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors

"""Commands of cafcat that start, and begin when they are told to: so that several are at work at once."""

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
    """With a home in that folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CAFCAT_")}
    return kept | {"CAFCAT_HOME": str(folder / "home"), "CAFCAT_STORE": store} | dict(further)


def popen(folder: Path, variables: Mapping[str, str], *arguments: str) -> Command:
    """Start a command that prints "ready", and begins its work with the first line on its standard input."""
    return Command(arguments, cwd=folder, env=variables, program=_WAITING, text=True)


def start_all(processes: "Sequence[subprocess.Popen[str]]") -> None:
    """They begin when all of them have started."""
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()


def run(folder: Path, variables: Mapping[str, str], *arguments: str) -> None:
    """Runs one to its end, which has to be good."""
    process = popen(folder, variables, *arguments)
    _, errors = process.communicate("\n", timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors

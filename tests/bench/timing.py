"""Measurements by the wall clock, in turn: A B A B."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.bench.table import figure

Way = Callable[[], float]
"""Does the work once, and returns its seconds, without preparation and clean-up."""


def timed(work: Callable[[], object]) -> float:
    """Return the wall seconds of a function."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def run(*command: str | Path, cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> None:
    """Run a command that must succeed. Its output is shown only if it fails."""
    environment = os.environ | (environ or {})
    done = subprocess.run([*command], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        output = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise RuntimeError(f"{Path(command[0]).name} ended with {done.returncode}: {output[-500:]}")


def shell(
    script: str, *arguments: str | Path, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> None:
    """Run a pipeline, whose arguments are $1, $2 ..."""
    run("bash", "-c", f"set -o pipefail; {script}", "bash", *arguments, cwd=cwd, environ=environ)


def in_turn(ways: Mapping[str, Way], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way by round, after one round that is not counted."""
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            seconds = way()
            if turn:
                measured[name].append(seconds)
    return measured


def seconds_of(measured: Mapping[str, Sequence[float]], *names: str) -> str:
    """Return a text such as "cafcat 1.20 s [1.10-1.31]; tar 0.72 s [...]"."""
    return "; ".join(f"{name} {figure(measured[name], 's')}" for name in names)

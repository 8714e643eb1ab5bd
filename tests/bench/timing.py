"""Things are run in turn, A B A B, each by the wall clock."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.bench.table import figure

Way = Callable[[], float]
"""Does the work once and returns its seconds; what it does before and after that is not counted."""


def timed(work: Callable[[], object]) -> float:
    """Wall seconds."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def run(*command: str | Path, cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> None:
    """A command that has to succeed; what it prints is shown only if it does not."""
    environment = os.environ | (environ or {})
    done = subprocess.run([*command], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise RuntimeError(f"{Path(command[0]).name} ended with {done.returncode}: {said[-500:]}")


def shell(script: str, *arguments: str | Path, cwd: Path | None = None) -> None:
    """A pipeline; its arguments are $1, $2 ..."""
    run("bash", "-c", f"set -o pipefail; {script}", "bash", *arguments, cwd=cwd)


def in_turn(ways: Mapping[str, Way], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, round by round, after one round that does not count."""
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            seconds = way()
            if turn:
                measured[name].append(seconds)
    return measured


def seconds_of(measured: Mapping[str, Sequence[float]], *names: str) -> str:
    """ "cafcat 1.20 s [1.10-1.31]; tar 0.72 s [...]"."""
    return "; ".join(f"{name} {figure(measured[name], 's')}" for name in names)

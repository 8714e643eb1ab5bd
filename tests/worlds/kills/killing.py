"""Run programs that are killed at a step: a call that makes something durable or visible."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import cafcat
from tests.worlds.catalog_world import sql
from tests.worlds.commands import Command
from tests.worlds.waiting import PATIENCE_SECONDS

__all__ = ["STEPS", "environment", "killed_at_each_step", "run_until_killed"]

PROJECT = Path(__file__).parents[3]
STEPS = [
    ("folder", 4),
    pytest.param("folder", 1, marks=pytest.mark.slow),
    pytest.param("bucket", 1, marks=pytest.mark.slow),
]
"""Parameters (place, every) of tests that kill a verb at its steps: see killed_at_each_step."""


def environment(database_url: str, store: str, home: Path) -> dict[str, str]:
    """Return variables that point cafcat to catalog and store, and a program in any folder to these modules."""
    return os.environ | {
        "CAFCAT_DATABASE_URL": database_url,
        "CAFCAT_STORE": store,
        "CAFCAT_HOME": str(home),
        "PYTHONPATH": os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def run_until_killed(
    program: str, step: int, *arguments: str, folder: Path | None = None, variables: Mapping[str, str]
) -> int:
    """Run a program that kills itself at the step of its first argument. Return its exit code."""
    given = [str(step), *arguments]
    with Command(given, cwd=folder or Path.cwd(), env=variables, program=program, text=True) as process:
        process.communicate(timeout=PATIENCE_SECONDS)
    return int(process.returncode)


def killed_at_each_step(
    repository: cafcat.Repository,
    store: str,
    folder: Path,
    verb: str,
    *arguments: str,
    prepare: Callable[[int], object] = lambda _: None,
    at_least: int = 10,
    every: int = 1,
) -> Iterator[int]:
    """Kill a verb at one step after the other, until it comes to its end.

    Args:
        repository: its catalog is the verb's.
        store: URL of the verb's store.
        folder: the current folder of the verb.
        verb: a name of killed_verbs.VERBS.
        arguments: of the verb.
        prepare: called with the number of the step before each run.
        at_least: number of steps that the verb has at least.
        every: kill at the first step, and at each `every`-th one after it.

    Yields:
        The number of a step, after the verb was killed there.
    """
    variables = environment(str(repository.settings.database_url), store, folder / "home")
    with _children(folder, variables, verb, *arguments) as run:
        for number in itertools.count(1, every):
            prepare(number)
            code = run(number)
            if code == 0:
                assert number > at_least
                break
            assert code == -signal.SIGKILL
            _wait_for_the_server(repository)
            yield number


@contextlib.contextmanager
def _children(folder: Path, variables: Mapping[str, str], *arguments: str) -> Iterator[Callable[[int], int]]:
    """Yield a function that runs a child which is killed at a step, and returns the exit code of the child."""
    command = [sys.executable, "-m", "tests.worlds.kills.killed_verbs", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=variables, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin
        assert process.stdout
        asked, answers = process.stdin, process.stdout

        def run(number: int) -> int:
            asked.write(f"{number}\n")
            asked.flush()
            return int(answers.readline())

        yield run


def _wait_for_the_server(repository: cafcat.Repository) -> None:
    """Wait until the server has finished or undone the statements of the killed process."""
    statement = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' AND state <> 'idle'"
    )
    while sql(repository, statement) != [(0,)]:
        pass

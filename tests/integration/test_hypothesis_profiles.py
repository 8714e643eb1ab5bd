"""Every run of the tests draws the same examples, and random examples can be drawn again from their seed."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worlds.sharing import run_folder

TOP = Path(__file__).parents[2]
SAMPLE = """
import hashlib, sys
from hypothesis import core, given, strategies as st
from tests.hypothesis_profiles import load_profile
load_profile()
if sys.argv[1] == "with module":
    import constants_of_the_project
drawn = []
@given(st.binary(), st.text(), st.integers(), st.floats(), st.sets(st.sampled_from("abcdef")))
def test_sample(data, text, number, fraction, letters):
    drawn[-1].update(repr((data, text, number, fraction, sorted(letters))).encode())
for seed in map(int, sys.argv[2:]):
    core.global_force_seed = seed or None  # as --hypothesis-seed does
    drawn.append(hashlib.sha256())
    test_sample()
print(*(run.hexdigest() for run in drawn))
"""


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where hypothesis stores the constants of the project, so that only one process parses the sources."""
    return str(run_folder(tmp_path_factory) / "hypothesis")


def drawn(
    folder: Path, storage: str, profile: str, *seeds: int, ci: str | None = None, with_module: bool = False
) -> list[str]:
    """Return hashes of the examples that another process draws for each seed; 0 means no seed.

    Args:
        folder: where the process runs.
        storage: hypothesis' own folder.
        profile: name of the profile.
        seeds: one run each.
        ci: value of the variable CI; None means that the variable is not set.
        with_module: True to import a further module with constants first.
    """
    module = "\n".join(f"MARK{n} = b'mark {n}'; TEXT{n} = 'text {n}'; NUMBER{n} = {n * 7919}" for n in range(50))
    (folder / "constants_of_the_project.py").write_text(module)
    run = subprocess.run(
        [sys.executable, "-c", SAMPLE, "with module" if with_module else "alone", *map(str, seeds)],
        env={name: value for name, value in os.environ.items() if name != "CI"}
        | ({} if ci is None else {"CI": ci})
        | {
            "HYPOTHESIS_PROFILE": profile,
            "PYTHONHASHSEED": "random",
            "PYTHONPATH": f"{TOP}{os.pathsep}{folder}",
            "HYPOTHESIS_STORAGE_DIRECTORY": storage,
        },
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.mark.slow
def test_every_run_draws_the_same_examples_whatever_is_loaded(tmp_path: Path, storage: str) -> None:
    assert drawn(tmp_path, storage, "plain", 0) == drawn(tmp_path, storage, "plain", 0, with_module=True)


@pytest.mark.slow
def test_exploring_draws_new_examples_unless_it_has_a_seed(tmp_path: Path, storage: str) -> None:
    """hypothesis draws the same examples in each run by default where the variable CI is set."""
    first, second, *seeded = drawn(tmp_path, storage, "explore", 0, 0, 5, 6)
    first_in_ci, second_in_ci, *seeded_in_ci = drawn(tmp_path, storage, "explore", 0, 0, 5, 6, ci="true")
    assert len({first, second, first_in_ci, second_in_ci}) == 4
    assert seeded == seeded_in_ci
    assert seeded[0] != seeded[1]


def test_random_contents_are_the_same_in_every_run(request: pytest.FixtureRequest) -> None:
    assert random.randbytes(9) == random.Random(request.node.nodeid).randbytes(9)


FAILING = """
from hypothesis import given, strategies as st
@given(st.integers())
def test_that_fails(number):
    assert number < 1000
"""


@pytest.mark.slow
def test_a_failure_while_exploring_names_the_command_that_repeats_it(tmp_path: Path, storage: str) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_terminal_summary\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-c", os.devnull, "--rootdir", str(tmp_path)]
    run = subprocess.run(
        [*command, "--hypothesis-seed=17", str(tmp_path)],
        env=os.environ
        | {"HYPOTHESIS_PROFILE": "explore", "PYTHONPATH": str(TOP), "HYPOTHESIS_STORAGE_DIRECTORY": storage},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "The same examples again: make explore SEED=17" in run.stdout


@pytest.mark.parametrize("verb", ["explore", "fuzz", "nightly"])
def test_make_passes_the_seed(verb: str) -> None:
    run = subprocess.run(["make", "-n", verb, "SEED=17"], cwd=TOP, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "--hypothesis-seed=17" in run.stdout

"""python -m tests.pythons: the tests on every Python that is found, each in a virtual environment below .venvs/.

Interpreters are looked for on PATH (`python3.11` to the newest that pyproject.toml names) and among those of pyenv.
Options after `--` go to pytest: names of tests, for example.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Python", "find", "main", "supported_minors"]

TOP = Path(__file__).parents[1]
VENVS = TOP / ".venvs"
# An interpreter without these cannot make a virtual environment.
PROBE = "import ensurepip, sys, venv; print(*sys.version_info[:3], sys.version_info.releaselevel)"


class Python(NamedTuple):
    """An interpreter of one of the versions that the package promises."""

    version: tuple[int, int, int]
    path: str

    @property
    def minor(self) -> str:
        """Its version without the patch level: `3.13`."""
        return f"{self.version[0]}.{self.version[1]}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pythons", description=__doc__)
    parser.add_argument("--list", action="store_true", help="only print the interpreters")
    parser.add_argument(
        "--newest", action="store_true", help="only the newest, and nothing if that is the one that runs this"
    )
    parser.add_argument("pytest", nargs="*", help="options of pytest; without them all tests that are not slow")
    given = parser.parse_args(arguments)
    found = find()
    if given.newest:
        found = [python for python in found[-1:] if python.version[:2] != sys.version_info[:2]]
        if not found:
            print(f"Python {sys.version_info[0]}.{sys.version_info[1]} is the newest that is found")
    if given.list:
        print(*(f"{python.minor}\t{python.path}" for python in found), sep="\n")
        return 0
    codes = {python.minor: run(python, given.pytest) for python in found}
    for minor, code in codes.items():
        print(f"Python {minor}: {'passed' if code == 0 else f'FAILED (exit code {code})'}")
    return max(codes.values(), default=0)


def supported_minors() -> list[tuple[int, int]]:
    """Return the versions that pyproject.toml promises, in order."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    versions = (re.fullmatch(r".* :: (3)\.([0-9]+)", line) for line in project["classifiers"])
    return sorted((int(found[1]), int(found[2])) for found in versions if found)


def find() -> list[Python]:
    """Return the newest interpreter of each supported version that is found, in order of the versions."""
    return [max(some) for minor in supported_minors() if (some := list(_usable(minor)))]


def _usable(minor: tuple[int, int]) -> Iterator[Python]:
    for path in _candidates("{}.{}".format(*minor)):
        probe = subprocess.run([path, "-c", PROBE], capture_output=True, text=True)
        # A shim of pyenv's is on PATH for versions that are not activated, too, and fails.
        if probe.returncode == 0:
            *numbers, level = probe.stdout.split()
            version = tuple(map(int, numbers))
            if version[:2] == minor and level == "final":
                yield Python((version[0], version[1], version[2]), path)


def _candidates(minor: str) -> Iterator[str]:
    on_path = shutil.which(f"python{minor}")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob(f"versions/{minor}.*/bin/python3")))


def run(python: Python, options: list[str]) -> int:
    """Return pytest's exit code."""
    executable = _environment(python)
    started = time.monotonic()
    print(f"Python {'.'.join(map(str, python.version))}: {' '.join(options) or 'all tests'}", flush=True)
    workers = min(4, 1 + (os.cpu_count() or 1))
    command = [
        executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        str(workers),
        "--dist",
        "worksteal",
        "-m",
        "not slow",
        *options,
    ]
    code = subprocess.run(command, cwd=TOP).returncode
    print(f"Python {python.minor}: {time.monotonic() - started:,.0f} s", flush=True)
    return code


def _environment(python: Python) -> str:
    """Return the interpreter of its virtual environment, which is replaced when pyproject.toml has changed."""
    folder = VENVS / python.minor
    executable, ready = folder / "bin" / "python", folder / ".ready"
    made_of = hashlib.sha256((TOP / "pyproject.toml").read_bytes() + repr(python).encode()).hexdigest()
    if not ready.exists() or ready.read_text() != made_of:
        print(f"Python {python.minor}: making {folder}", flush=True)
        subprocess.run([python.path, "-m", "venv", "--clear", folder], check=True)
        install = [executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--editable", ".[dev]"], cwd=TOP, check=True)
        ready.write_text(made_of)
    return str(executable)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

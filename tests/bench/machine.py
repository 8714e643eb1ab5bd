"""The machine and the time of the measurement."""

import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import cafcat

ROOT = Path(__file__).parents[2]


def described(folder: Path, postgres: str) -> str:
    """Return Markdown: a line with time and versions, and a line with the machine."""
    today = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    program = f"cafcat {cafcat.__version__}{_commit()}, Python {platform.python_version()}, PostgreSQL {postgres}"
    parts = [f"{os.cpu_count()} CPUs ({_cpu()})", f"{_memory_bytes() / (1 << 30):.0f} GiB", file_system(folder)]
    kernel = f"{platform.system()} {platform.release()}"
    return f"{today}; {program}, {_version('tar')}.\nMachine: {', '.join([*parts, kernel])}."


def shown_command(arguments: Sequence[str]) -> str:
    """Return the command that prints the table again, without names of folders on this machine."""
    shown, skip = [], False
    for argument in arguments:
        if not skip and not argument.startswith("--folder"):
            shown.append(argument)
        skip = argument == "--folder"
    return shlex.join(["python", "-m", "tests.bench", *shown])


def file_system(folder: Path) -> str:
    """Return the type of the file system of a folder, or "unknown file system"."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return "unknown file system"
    mounts = [(line.split()[1], line.split()[2]) for line in lines]
    inside = [(len(place), kind) for place, kind in mounts if folder.resolve().is_relative_to(place)]
    return max(inside)[1] if inside else "unknown file system"


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str:
    """Return the commit as " (1a2b3c4)", with "+" if files are changed; "" outside a git checkout."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return ""
    return f" ({done.stdout.strip()})" if done.returncode == 0 else ""


def _version(program: str) -> str:
    """Return the first line that the program prints for --version."""
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]

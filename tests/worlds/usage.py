"""What a program and its child processes use: memory, open files and threads. Linux only."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["Usage", "processes_of", "usage_of"]


class Usage(NamedTuple):
    """What processes use together. files: open files, also the sockets. at: when it was measured."""

    at: str
    resident_bytes: int
    files: int
    sockets: int
    threads: int

    def __str__(self) -> str:
        mib = self.resident_bytes / (1 << 20)
        return (
            f"{self.at:>8}: {mib:7.1f} MiB, {self.files} open files, {self.sockets} sockets, {self.threads} threads"
        )


def processes_of(first: int) -> list[int]:
    """Return a process and its children."""
    found = [first]
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rsplit(")", 1)[1].split()[1]) == first:
                found.append(int(path.parent.name))
    return found


def usage_of(process: int, at: str = "") -> Usage:
    """Return what a process and its children use."""
    resident = files = sockets = threads = 0
    for one in processes_of(process):
        folder = Path(f"/proc/{one}")
        status = (folder / "status").read_text()
        resident += int(status.split("VmRSS:")[1].split()[0]) * 1024
        threads += int(status.split("Threads:")[1].split()[0])
        for file in (folder / "fd").iterdir():
            with contextlib.suppress(OSError):
                sockets += os.readlink(file).startswith("socket:")
                files += 1
    return Usage(at, resident, files, sockets, threads)

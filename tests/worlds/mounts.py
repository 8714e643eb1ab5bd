"""Mounts of the real command, and whether this machine can mount."""

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

__all__ = ["Mount", "libfuse_version", "mounted", "needs_fuse"]


def _can_mount() -> bool:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return False
    try:
        importlib.import_module("mfusepy")
    except (ImportError, OSError, AttributeError):
        return False
    return os.getuid() == 0 or bool(shutil.which("fusermount3") or shutil.which("fusermount"))


needs_fuse = pytest.mark.skipif(not _can_mount(), reason="needs /dev/fuse, mfusepy, and libfuse 2 or 3")


def libfuse_version() -> int:
    """Return 2 or 3, or 0 without libfuse."""
    try:
        return int(importlib.import_module("mfusepy").fuse_version_major)
    except (ImportError, OSError, AttributeError):
        return 0


class Starts(Protocol):
    """Starts the command, as Cafcat of tests/e2e does."""

    def popen(self, *arguments: str | Path) -> "subprocess.Popen[bytes]": ...


class Mount:
    """A mounted folder, and the process of its command.

    Attributes:
        folder: the folder.
        process: the process, which runs until it is unmounted.
        errors: what the process has printed on stderr, when it has ended.
    """

    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]") -> None:
        self.folder = folder
        self.process = process
        self.errors = ""

    def end(self, number: int = signal.SIGINT) -> None:
        """Send a signal, and wait for a clean end."""
        if self.process.returncode is not None:
            return
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        self.errors = errors.decode()
        assert (self.process.returncode, os.path.ismount(self.folder)) == (0, False), self.errors


@contextlib.contextmanager
def mounted(cafcat: Starts, folder: Path, *arguments: str | Path) -> Iterator[Mount]:
    """Mount on a folder, which is made, with further arguments of the command; unmount at the end."""
    folder.mkdir()
    process = cafcat.popen("mount", folder, *arguments)
    mount = Mount(folder, process)
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert b"mounted" in line, process.stderr and process.stderr.read()
        wait_until(lambda: os.path.ismount(folder))
        yield mount
        mount.end()
    finally:
        if process.returncode is None:
            process.kill()
            process.communicate()
        if os.path.ismount(folder) or _is_dead_mount(folder):
            unmount = ["umount", "-l"] if os.getuid() == 0 else ["fusermount3", "-uz"]
            subprocess.run([*unmount, folder], check=False, capture_output=True)


def _is_dead_mount(folder: Path) -> bool:
    try:
        os.stat(folder)
    except OSError:
        return True
    return False

"""Files that this process has open."""

import os
import sys
from pathlib import Path

import pytest

__all__ = ["open_files"]


def open_files(folder: Path) -> list[str]:
    """Return the names of open files below a folder, relative to it, once per descriptor.

    " (deleted)" follows the name of a file that was removed. Files elsewhere are left out, because threads of other
    tests open and close files meanwhile.
    """
    if sys.platform != "linux":
        pytest.skip("looks at /proc")
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue  # the descriptor of listdir itself, or one that was closed meanwhile
    return sorted(name.removeprefix(f"{folder}/") for name in names if name.startswith(f"{folder}/"))

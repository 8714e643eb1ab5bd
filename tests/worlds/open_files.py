"""Files that this process has open."""

import os
import sys
from pathlib import Path

import pytest

__all__ = ["open_files"]


def open_files(folder: Path) -> list[str]:
    """Those below a folder, as names from there, once per descriptor; " (deleted)" behind one that is gone.

    Never count all that the process has open: threads of other tests open and close theirs meanwhile.
    """
    if sys.platform != "linux":
        pytest.skip("looks at /proc")
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue  # that of listdir itself, or closed meanwhile
    return sorted(name.removeprefix(f"{folder}/") for name in names if name.startswith(f"{folder}/"))

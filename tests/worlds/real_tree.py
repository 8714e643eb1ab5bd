"""A folder with copies of real files of this machine."""

import os
import random
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

__all__ = ["copy_real_files"]

LARGEST_BYTES = 1_000_000
ROOTS = (Path(sysconfig.get_paths()["purelib"]), Path(sys.base_prefix), Path("/usr"))


def copy_real_files(folder: Path, count: int) -> None:
    """Copy files of this machine, with their names, folders and times.

    Args:
        folder: A new folder for the copies.
        count: Number of files. Fewer are copied if the machine has not so many.
    """
    found = sorted(_files())
    for path in random.Random(count).sample(found, min(count, len(found))):
        copy = folder / path.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)


def _files() -> set[Path]:
    """Return all regular files below the roots that can be read and are not large."""
    return {path for root in ROOTS for path in _walk(root)}


def _walk(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file() and _fits(path):
                yield path


def _fits(path: Path) -> bool:
    return os.access(path, os.R_OK) and path.stat().st_size < LARGEST_BYTES and str(path).isprintable()

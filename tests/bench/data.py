"""The data sets, with the same bytes in each run: (a) small files, (b) of 1 MiB, (c) of 64 MiB, (d) of 4 KiB."""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER_FILES = 500
KIB, MIB = 1 << 10, 1 << 20
SMALL, MEDIUM, LARGE, PAGES = 200_000, 2_000, 64, 200_000
"""Numbers of files of (a), (b), (c) and (d) at full size."""
SMALLEST_BYTES, LARGEST_BYTES = 1024, 4096


class DataSet(NamedTuple):
    """Files below a folder."""

    folder: Path
    files: int
    size_bytes: int

    @property
    def name(self) -> str:
        return self.folder.name

    def paths(self) -> Iterator[Path]:
        """Yield the paths in the order of their names."""
        for place in sorted(self.folder.iterdir()):
            yield from sorted(place.iterdir())

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def scaled(files: int, scale: float) -> int:
    return max(1, round(files * scale))


def small_files(folder: Path, files: int, folder_files: int = FOLDER_FILES) -> DataSet:
    """Write files of 1 to 4 KiB."""
    source = random.Random(20260101)
    noise = source.randbytes(1 << 16)
    total = 0
    for number in range(files):
        size, start = source.randrange(SMALLEST_BYTES, LARGEST_BYTES + 1), source.randrange(1 << 15)
        _place(folder, number, folder_files).write_bytes(noise[start : start + size])
        total += size
    return DataSet(folder, files, total)


def equal_files(folder: Path, files: int, size_bytes: int) -> DataSet:
    """Write files of one size with random bytes."""
    source = random.Random(20260102)
    for number in range(files):
        _place(folder, number, FOLDER_FILES).write_bytes(source.randbytes(size_bytes))
    return DataSet(folder, files, files * size_bytes)


def _place(folder: Path, number: int, folder_files: int) -> Path:
    place = folder / f"{number // folder_files:05}"
    if number % folder_files == 0:
        place.mkdir(parents=True)
    return place / f"file-{number:07}.dat"


def concatenated(data: DataSet, target: Path) -> Path:
    """Write all bytes of a data set into one file, for dd."""
    with target.open("wb") as output:
        for path in data.paths():
            output.write(path.read_bytes())
        os.fsync(output.fileno())
    return target


def read_all(paths: Iterator[Path]) -> None:
    """Read files, so that they are in the page cache."""
    buffer = bytearray(MIB)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

"""Files of 4 KiB that programs read in random order, from the page cache."""

import random
from pathlib import Path

from tests.bench.bench import Bench, Home
from tests.bench.data import read_all

__all__ = ["FILES", "Files"]

FILES = 20_000
"""Number of files that are read at full scale."""


class Files:
    """The files of (d), as a tree and as one chunk, and a sample of their paths. All are in the page cache."""

    def __init__(self, bench: Bench, files: int = FILES) -> None:
        self.data = bench.pages
        self.root: Path = bench.folder
        """The folder above the tree: a path of the catalog is also a path below it."""
        self.home: Home = bench.packed(self.data)
        paths = [str(path.relative_to(self.root)) for path in self.data.paths()]
        self.paths = random.Random(8).sample(paths, min(files, len(paths)))
        """Paths of the catalog, in random order."""
        read_all(iter(self.home.chunks()))
        read_all(self.root / path for path in self.paths)

    def targets(self, before: str = "/") -> list[str]:
        """Return the sample as paths of URLs."""
        return [before + path for path in self.paths]

    def keys(self) -> list[str]:
        """Return the sample as paths below the folder of the data set."""
        return [path.removeprefix(f"{self.data.name}/") for path in self.paths]

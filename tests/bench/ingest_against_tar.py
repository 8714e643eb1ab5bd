"""`make bench`: ingest of 50,000 small files against tar of the same tree, in turn, as a ratio.

Both end durable: cafcat by its protocol (fsync of the chunk and its folder, then COMMIT), tar by a sync of its
file. Each is a whole process, on a warm page cache; cafcat's embedded database is up, its catalog empty.
"""

import argparse
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cafcat

FOLDER_FILES = 500


def make_tree(folder: Path, files: int) -> int:
    """Files of 1 to 4 KiB in folders of 500; the same each time. Returns their bytes."""
    source = random.Random(20260101)
    noise = source.randbytes(1 << 16)
    total = 0
    for number in range(files):
        place = folder / f"{number // FOLDER_FILES:05}"
        if number % FOLDER_FILES == 0:
            place.mkdir(parents=True)
        size, start = source.randrange(1024, 4097), source.randrange(1 << 15)
        (place / f"file-{number:07}.dat").write_bytes(noise[start : start + size])
        total += size
    return total


def timed(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def run(*command: str, **environment: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | environment)


class Contest:
    """One tree, and a scratch folder that each run leaves empty."""

    def __init__(self, folder: Path, files: int) -> None:
        self.tree = folder / "tree"
        self.bytes = make_tree(self.tree, files)
        self._folder = folder
        self._round = 0

    def tar(self) -> float:
        archive = self._folder / "tree.tar"
        script = 'tar cf "$0" -C "$1" tree && sync "$0"'
        seconds = timed(lambda: run("sh", "-c", script, str(archive), str(self._folder)))
        archive.unlink()
        return seconds

    def cafcat(self) -> float:
        self._round += 1
        home = self._folder / f"home-{self._round}"
        call = (sys.executable, "-m", "cafcat")
        run(*call, "db", "init", CAFCAT_HOME=str(home))
        seconds = timed(lambda: run(*call, "ingest", "-q", str(self.tree), CAFCAT_HOME=str(home)))
        run(*call, "db", "stop", CAFCAT_HOME=str(home))
        shutil.rmtree(home)
        return seconds


def figure(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}-{max(values):.2f}]"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=50_000)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    for name in [name for name in os.environ if name.startswith("CAFCAT_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="cafcat-bench-") as folder:
        contest = Contest(Path(folder), given.files)
        contest.tar(), contest.cafcat()  # warm-up
        pairs = [(contest.tar(), contest.cafcat()) for _ in range(given.rounds)]
    tar, ours = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    version = subprocess.run(["tar", "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    print(f"{given.files:,} files, {contest.bytes:,} bytes; {given.rounds} rounds, median [min-max]")
    print(f"cafcat {cafcat.__version__}, Python {platform.python_version()}, {version}, {os.cpu_count()} cores\n")
    print("| | seconds | ratio to tar of the same round |")
    print("|---|---|---|")
    print(f"| tar cf + sync | {figure(tar)} | 1 |")
    print(f"| cafcat ingest, catalog committed | {figure(ours)} | {figure([b / a for a, b in pairs])} |")


if __name__ == "__main__":
    main()

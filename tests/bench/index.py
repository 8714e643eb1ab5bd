"""Reading the index of an archive of a million files, in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.bench import Bench
from tests.bench.table import Row, at_most, figure

ENTRIES = 1_000_000
LIMIT_SECONDS = 0.3
LIMIT_MB = 64
_READ = """
import sys, time
from cafcat.formats.caf.reader import CafReader
from cafcat.stores.base import StoredObject
from cafcat.stores.local.store import LocalStore

def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))

reader = CafReader(StoredObject(LocalStore(sys.argv[1]), "index.caf"))
before, begun = peak_bytes(), time.perf_counter()
if sys.argv[2] == "entries":
    count = sum(1 for _ in reader.entries())
else:
    groups = reader.entry_groups()
    count = sum(sum(1 for _ in group) if isinstance(group, tuple) else len(group) for group in groups)
print(time.perf_counter() - begun, peak_bytes() - before, count)
"""
"""Prints the seconds, how much the peak of the memory grew, in bytes, and the number of entries."""


def index(bench: Bench) -> Iterator[Row]:
    """Read the index as columns, as `verify` does, and as objects of entries, as `adopt` and `rebuild` do."""
    folder = bench.folder / "index"
    folder.mkdir(exist_ok=True)
    _write(folder / "index.caf")
    for way, work in (("columns", "as columns"), ("entries", "as objects")):
        read = [_read(folder, way) for _ in range(bench.rounds + 1)][1:]
        seconds, peaks = [one[0] for one in read], [one[1] for one in read]
        absolute = f"{figure(seconds, 's')}; {max(peaks) / 1e6:.0f} MB"
        ratios = [one / LIMIT_SECONDS for one in seconds]
        what = f"index of {ENTRIES:,} files, {work}, in the page cache"
        yield Row(f"index.{way}", what, f"{LIMIT_SECONDS} s", at_most(1), ratios, absolute)
        assert max(peaks) < LIMIT_MB * 1e6, peaks
    (folder / "index.caf").unlink()


ROWS = (index,)


def _write(path: Path) -> None:
    """Write an archive of empty files, with names, checksums and times as long as usual ones."""
    entries = ",".join(
        f'"folder-{n // 500:05}/file-{n % 500:06}.txt":{{"start_byte":0,"end_byte":0,"crc32c":{4_000_000_000 + n},'
        f'"modified_ns":{1_764_000_000_000_000_000 + n}}}'
        for n in range(ENTRIES)
    )
    text = f'{{"format_version":"1.0","files":{{{entries}}}}}'.encode()
    path.write_bytes(text + len(text).to_bytes(4, "little"))


def _read(folder: Path, way: str) -> tuple[float, int]:
    """Return the seconds, and the growth of the peak of the memory in bytes."""
    command = [sys.executable, "-c", _READ, str(folder), way]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak, count = done.stdout.split()
    assert int(count) == ENTRIES
    return float(seconds), int(peak)

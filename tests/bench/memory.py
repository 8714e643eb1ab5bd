"""Peak memory of the largest process of an ingest, as the kernel measures it (VmHWM)."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.bench import CAFCAT, Bench
from tests.bench.data import DataSet, small_files
from tests.bench.packing import JOBS, NO_JOBS
from tests.bench.table import Row, at_most

LIMIT_MB = 150
_LOOK_SECONDS = 0.01


def memory(bench: Bench) -> Iterator[Row]:
    """The peaks for 10⁴ and 10⁵ files, and with --growth-million for 10⁶: one limit holds for all."""
    for files in sizes(bench):
        data = small_files(bench.folder / f"memory-{files}", files)
        for option in JOBS if bench.ingest_has_jobs else ["-j1"]:
            peaks = [_ingest(bench, data, option) for _ in range(min(2, bench.rounds))]
            ratios = [max(each) / 1e6 / LIMIT_MB for each in peaks]
            shown = " + ".join(f"{peak / 1e6:.0f}" for peak in peaks[-1])
            work = f"memory of ingest {option}, {files:,} files, largest process"
            name = f"memory {option} {files}"
            yield Row(name, work, f"{LIMIT_MB} MB", at_most(1), ratios, f"processes: {shown} MB")
        if not bench.ingest_has_jobs:
            yield Row(f"memory -j2 {files}", "memory of ingest -j2", f"{LIMIT_MB} MB", at_most(1), missing=NO_JOBS)
        data.remove()


def synthetic(bench: Bench) -> Iterator[Row]:
    """The peak of one process with synthetic files, which need no disk.

    With --growth-million there is a second row for ten million files.
    """
    home = bench.home()
    for files in [min(bench.files, 100_000)] + [10_000_000] * bench.million:
        home.empty()
        command = [sys.executable, "-m", "tests.bench.synthetic", str(files)]
        begun = time.perf_counter()
        done = subprocess.run(command, env=os.environ | home.environ, check=True, capture_output=True, text=True)
        seconds = time.perf_counter() - begun
        assert home.files() == files
        peak = int(done.stdout)
        work = f"memory of ingest -j1, {files:,} files, all of them synthetic"
        absolute = f"{peak / 1e6:.0f} MB; {files / seconds:,.0f} files/s"
        yield Row(
            f"memory.synthetic {files}", work, f"{LIMIT_MB} MB", at_most(1), [peak / 1e6 / LIMIT_MB], absolute
        )
    home.empty()


ROWS = (memory, synthetic)


def sizes(bench: Bench) -> list[int]:
    """Return the powers of ten that this run reaches, at least one."""
    wanted = [10_000, 100_000] + [1_000_000] * bench.million
    return [files for files in wanted if files <= bench.files or files == 1_000_000] or [bench.files]


def _ingest(bench: Bench, data: DataSet, option: str) -> list[int]:
    """Return the peak bytes of each process of an ingest, largest first."""
    home = bench.home()
    home.empty()
    options = JOBS[option] if bench.ingest_has_jobs else ()
    command = [*CAFCAT, "ingest", "-q", *options, data.name]
    peaks: dict[int, int] = {}
    process = subprocess.Popen(command, cwd=bench.folder, env=os.environ | home.environ)
    try:
        while process.poll() is None:
            for pid in [process.pid, *descendants(process.pid)]:
                peaks[pid] = max(peaks.get(pid, 0), peak_bytes(pid))
            time.sleep(_LOOK_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0
    assert home.files() == data.files
    home.empty()
    return sorted(peaks.values(), reverse=True)


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, and those that they have started."""
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in listed.read_text().split()]
        except OSError:
            continue
        for child in children:
            yield child
            yield from descendants(child)


def peak_bytes(pid: int) -> int:
    """Return the peak memory of a process in bytes; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0

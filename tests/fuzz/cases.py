"""A damaged file: made from its numbers alone, read, and measured."""

import resource
import sys
import time
import tracemalloc
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple

from tests.fuzz.formats import damaged_car, damaged_chunkio, damaged_databundle
from tests.fuzz.mutations import damaged_archive, damaged_bytes, damaged_journal, damaged_json
from tests.fuzz.seeds import seeds_of
from tests.fuzz.targets import TARGETS

__all__ = ["MOST_CPU_SECONDS", "MOST_MEMORY_BYTES", "Case", "Watch", "damaged", "plainly", "resident_bytes"]

MOST_CPU_SECONDS = 1.0
"""Limit of reading a file from its first byte to its last."""
MOST_MEMORY_BYTES = 64 << 20
"""Limit of memory in addition to the size of the file."""

_MOST_FILE_BYTES = 16 << 20
_SUSPECT_BYTES = 8 << 20
"""Growth of the process after which a run is repeated with all allocations counted."""
_CPU_ATTEMPTS = 3


class Case(NamedTuple):
    """The number of a case in a campaign (`seed`) of one kind of file."""

    kind: str
    seed: int
    number: int

    def __str__(self) -> str:
        return f"python -m tests.fuzz --kind {self.kind} --seed {self.seed} --case {self.number}"


def damaged(case: Case) -> bytes:
    """Return the file of a case. It always differs from the seed from which it was made."""
    random = Random(f"{case.kind} {case.seed} {case.number}")
    seeds = seeds_of(case.kind)
    weights = list(accumulate(seed.weight for seed in seeds))
    original, other = (seeds[bisect(weights, random.randrange(weights[-1]))].data for _ in range(2))
    data = original
    while data == original:
        data = _MUTATIONS.get(case.kind, _any_text)(random, original, other)[:_MOST_FILE_BYTES]
    return data


def _any_text(random: Random, data: bytes, other: bytes) -> bytes:
    return damaged_json(random, data) if random.random() < 0.5 else damaged_bytes(random, data, other)


_MUTATIONS: dict[str, Callable[[Random, bytes, bytes], bytes]] = {
    "caf": damaged_archive,
    "index": damaged_archive,
    "journal": damaged_journal,
    "backup": damaged_bytes,
    "tar": damaged_bytes,
    "car": damaged_car,
    "chunkio": damaged_chunkio,
    "clp": damaged_bytes,
    "databundle": damaged_databundle,
}


class Watch:
    """Runs cases and measures them. Times in seconds of this process, memory in bytes."""

    def __init__(self) -> None:
        self.slowest = (0.0, -1)
        self.largest_growth = (0, -1)
        self._most_resident = resident_bytes()

    def run(self, case: Case, data: bytes) -> tuple[str, str | None]:
        """Return the outcome of a file, and the problem with this outcome, or None."""
        outcome, wrong, seconds = _outcome(case.kind, data)
        wrong = wrong or self._judged_time(case, data, seconds) or self._judged_memory(case, data)
        return outcome, wrong

    def _judged_time(self, case: Case, data: bytes, seconds: float) -> str | None:
        """Return a problem if reading takes too long.

        It is repeated, since other programs may have slowed it down.
        """
        for _ in range(_CPU_ATTEMPTS - 1):
            if seconds <= MOST_CPU_SECONDS:
                break
            seconds = min(seconds, _outcome(case.kind, data)[-1])
        self.slowest = max(self.slowest, (seconds, case.number))
        return f"it takes {seconds:.2f} s of CPU time" if seconds > MOST_CPU_SECONDS else None

    def _judged_memory(self, case: Case, data: bytes) -> str | None:
        """Return a problem if reading takes too much memory. Only a run that makes the process grow is measured."""
        growth = resident_bytes() - self._most_resident
        if growth < _SUSPECT_BYTES:
            return None
        self._most_resident += growth
        peak = _allocated_bytes(case.kind, data)
        self.largest_growth = max(self.largest_growth, (peak, case.number))
        return f"it takes {peak:,} bytes of memory" if peak > MOST_MEMORY_BYTES else None


def _outcome(kind: str, data: bytes) -> tuple[str, str | None, float]:
    """Return the outcome of a file, the problem with it, and the time of the longest reading."""
    seconds = [0.0]

    def timed(reading: Callable[[bytes], Any], data: bytes) -> Any:
        start = time.process_time()
        try:
            return reading(data)
        finally:
            seconds.append(time.process_time() - start)

    try:
        return TARGETS[kind](data, timed), None, max(seconds)
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {error}", max(seconds)


def _allocated_bytes(kind: str, data: bytes) -> int:
    """Return the largest memory that reading a file allocates, without the file itself."""
    tracemalloc.start()
    try:
        _outcome(kind, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def resident_bytes() -> int:
    """Return the largest memory that this process ever had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def plainly(reading: Callable[[bytes], Any], data: bytes) -> Any:
    """Read without measuring the time."""
    return reading(data)

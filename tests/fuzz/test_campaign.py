"""Some thousand damaged files for the readers (`make fuzz`: a million), and tests of the campaign itself."""

import multiprocessing as mp
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cafcat.errors import Corrupt, StoreFailed
from cafcat.formats.caf.format import CAF
from cafcat.formats.caf.reader import CafReader
from cafcat.model import Entry
from cafcat.testing.formats import pack
from tests.fuzz import cases
from tests.fuzz.campaign import Plan, Report, run_campaign
from tests.fuzz.cases import Case, Watch, damaged
from tests.fuzz.seeds import KINDS, seeds_of
from tests.fuzz.targets import TARGETS
from tests.worlds.waiting import PATIENCE_SECONDS

WHOLE = pack(CAF, [("a", b"hello", 1), ("b", b"", None)])[0]


@pytest.mark.parametrize(
    ("kind", "seed", "count"),
    [
        *((kind, 1, 100 if kind in ("caf", "car") else 200) for kind in KINDS),
        *(pytest.param(kind, 2, 1000, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_damaged_files_are_read_or_refused(tmp_path: Path, kind: str, seed: int, count: int) -> None:
    report = run_campaign(Plan(kind, seed, count, workers=1, findings=tmp_path))
    assert not report.findings, "\n".join(map(str, report.findings))
    assert report.cases == count
    assert report.growth <= cases.MOST_MEMORY_BYTES
    assert len(report.outcomes) > 1, "all files had one outcome"


@pytest.mark.parametrize("kind", KINDS)
def test_case_is_reproducible_and_always_damaged(kind: str) -> None:
    script = (
        "from tests.fuzz.cases import Case, damaged; from zlib import crc32\n"
        f"print([crc32(damaged(Case({kind!r}, 5, n))) for n in range(50)])"
    )
    again = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    from zlib import crc32

    made = [damaged(Case(kind, 5, n)) for n in range(50)]
    assert again.strip() == str([crc32(data) for data in made])
    assert not {seed.data for seed in seeds_of(kind)} & set(made)
    assert len(set(made)) > 40


@pytest.mark.parametrize("seed", [seed for kind in KINDS for seed in seeds_of(kind)], ids=lambda seed: seed.name)
def test_whole_seed_is_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: Any) -> None:
    monkeypatch.chdir(tmp_path)
    kind = next(kind for kind in KINDS if seed in seeds_of(kind))
    assert Watch().run(Case(kind, 0, 0), seed.data)[1] is None


def judged(target: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the problem that is found with a reader."""
    monkeypatch.setitem(TARGETS, "caf", target)
    wrong = Watch().run(Case("caf", 1, 1), WHOLE)[1]
    assert wrong is not None
    return wrong


def test_other_exceptions_and_excessive_memory_or_time_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: bytes, timed: Any) -> str:
        raise ValueError("a traceback")

    def grows(data: bytes, timed: Any) -> str:
        return str(len(bytearray(cases.resident_bytes() + (70 << 20))) and "whole")

    def takes_time(data: bytes, timed: Any) -> str:
        return str(timed(lambda _: sum(range(10_000)) and "whole", data))

    assert judged(fails, monkeypatch) == "ValueError: a traceback"
    assert "bytes of memory" in judged(grows, monkeypatch)
    monkeypatch.setattr(cases, "MOST_CPU_SECONDS", 1e-9)
    assert "s of CPU time" in judged(takes_time, monkeypatch)


WRONG_ENTRIES: dict[str, list[Entry]] = {
    "ends in the index": [Entry("a", 0, 6, None, None)],
    "before the file": [Entry("a", -1, 5, None, None)],
    "reversed": [Entry("a", 5, 4, None, None)],
    "invalid name": [Entry("\ud800", 0, 5, None, None)],
    "repeated name": [Entry("a", 0, 5, None, None)] * 2,
    "additional entry": [Entry("a", 0, 5, 2591144780, 1), Entry("c", 5, 5, 0, None)],
    "missing entry": [Entry("a", 0, 5, 2591144780, 1)],
    "wrong time": [Entry("a", 0, 5, 2591144780, 2), Entry("b", 5, 5, 0, None)],
}


@pytest.mark.parametrize("case", WRONG_ENTRIES)
def test_wrong_entries_are_findings(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr(CafReader, "entries", lambda _: iter(WRONG_ENTRIES[case]))
    assert Watch().run(Case("caf", 1, 1), WHOLE)[1] is not None


@pytest.mark.parametrize("error", [StoreFailed("no space"), Corrupt("two\nlines"), Corrupt("x" * 50_000)])
def test_errors_not_caused_by_damage_are_findings(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def entries(_: CafReader) -> Iterator[Entry]:
        raise error

    monkeypatch.setattr(CafReader, "entries", entries)
    assert "Wrong" in str(Watch().run(Case("caf", 1, 1), WHOLE)[1])


def test_dead_process_is_a_finding_and_its_file_is_stored(tmp_path: Path) -> None:
    reports: list[Report] = []
    plan = Plan("caf", 1, 10_000_000, workers=1, findings=tmp_path)
    campaign = threading.Thread(target=lambda: reports.append(run_campaign(plan)))
    before = set(mp.active_children())
    campaign.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (workers := set(mp.active_children()) - before):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    for worker in workers:
        os.kill(worker.pid or 0, signal.SIGKILL)
    campaign.join(PATIENCE_SECONDS)
    (report,) = reports
    (finding,) = report.findings
    assert finding.wrong == "the process died (exit code -9)"
    assert report.cases == 0
    assert [path.read_bytes() for path in tmp_path.iterdir()] == (
        [damaged(finding.case)] if finding.case.number >= 0 else []
    )


def test_endless_case_ends_its_process() -> None:
    script = """
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from tests.fuzz import campaign
from tests.fuzz.targets import TARGETS

def endless(data, timed):
    while True:
        pass

TARGETS["caf"] = endless
campaign._HANG_CPU_SECONDS = 0.1
campaign._run_all(campaign.Plan("caf", 1, 1, 1, Path("none")), 0, SimpleNamespace(), Queue())
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=PATIENCE_SECONDS).returncode == -signal.SIGPROF

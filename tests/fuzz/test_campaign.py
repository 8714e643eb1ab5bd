"""Some thousand damaged files through the readers (`make fuzz`: a million); and whether a campaign would notice."""

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
        *((kind, 1, 200) for kind in KINDS),
        *(pytest.param(kind, 2, 1000, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_damaged_files_are_refused_or_read_as_they_are(tmp_path: Path, kind: str, seed: int, count: int) -> None:
    report = run_campaign(Plan(kind, seed, count, workers=1, findings=tmp_path))
    assert not report.findings, "\n".join(map(str, report.findings))
    assert report.cases == count
    assert report.growth <= cases.MOST_MEMORY_BYTES
    assert len(report.outcomes) > 1, "some are read, and some are not"


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_is_the_same_whenever_it_is_made_and_never_whole(kind: str) -> None:
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
def test_what_is_damaged_is_no_finding_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    kind = next(kind for kind in KINDS if seed in seeds_of(kind))
    assert Watch().run(Case(kind, 0, 0), seed.data)[1] is None


def judged(target: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What is wrong with a reader that does that."""
    monkeypatch.setitem(TARGETS, "caf", target)
    wrong = Watch().run(Case("caf", 1, 1), WHOLE)[1]
    assert wrong is not None
    return wrong


def test_other_exceptions_and_too_much_memory_or_time_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
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


LIES: dict[str, list[Entry]] = {
    "goes on into the index": [Entry("a", 0, 6, None, None)],
    "before the file": [Entry("a", -1, 5, None, None)],
    "reversed": [Entry("a", 5, 4, None, None)],
    "no name": [Entry("\ud800", 0, 5, None, None)],
    "a name twice": [Entry("a", 0, 5, None, None)] * 2,
    "an entry that is not there": [Entry("a", 0, 5, 2591144780, 1), Entry("c", 5, 5, 0, None)],
    "one is missing": [Entry("a", 0, 5, 2591144780, 1)],
    "another time": [Entry("a", 0, 5, 2591144780, 2), Entry("b", 5, 5, 0, None)],
}


@pytest.mark.parametrize("lie", LIES)
def test_entries_that_cannot_be_are_findings(monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    monkeypatch.setattr(CafReader, "entries", lambda _: iter(LIES[lie]))
    assert Watch().run(Case("caf", 1, 1), WHOLE)[1] is not None


@pytest.mark.parametrize("error", [StoreFailed("no space"), Corrupt("two\nlines"), Corrupt("x" * 50_000)])
def test_errors_that_damage_cannot_be_are_findings(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def entries(_: CafReader) -> Iterator[Entry]:
        raise error

    monkeypatch.setattr(CafReader, "entries", entries)
    assert "Wrong" in str(Watch().run(Case("caf", 1, 1), WHOLE)[1])


def test_a_process_that_dies_is_a_finding_and_its_file_is_kept(tmp_path: Path) -> None:
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


def test_a_case_without_end_ends_its_process() -> None:
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

"""Run readers on very many damaged files, in several processes that are supervised from outside."""

import multiprocessing as mp
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any, NamedTuple

from tests.fuzz.cases import Case, Watch, damaged, plainly, resident_bytes
from tests.fuzz.seeds import seeds_of
from tests.fuzz.targets import TARGETS

__all__ = ["Finding", "Plan", "Report", "run_campaign"]

_HANG_CPU_SECONDS = 30
_HANG_SECONDS = 1800
_MOST_FINDINGS = 5
_REPORT_CASES = 10_000


class Plan(NamedTuple):
    """The files of one kind to damage.

    Attributes:
        kind: of the files.
        seed: of the damage.
        count: number of files.
        workers: number of processes.
        findings: folder for the files of findings.
        first: number of the first case.
    """

    kind: str
    seed: int
    count: int
    workers: int
    findings: Path
    first: int = 0


class Finding(NamedTuple):
    """A file for which a reader fails in a wrong way, or gives a wrong result."""

    case: Case
    wrong: str

    def __str__(self) -> str:
        return f"{self.wrong}\n    again: {self.case}"


@dataclass
class Report:
    """Results of cases.

    Attributes:
        cases: number of cases.
        seconds: wall time.
        outcomes: number of cases by outcome.
        slowest: CPU time in seconds, and the case.
        allocated: memory in bytes, and the case.
        growth: largest growth of a process in bytes.
        findings: the first findings of each process.
    """

    cases: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, -1)
    allocated: tuple[int, int] = (0, -1)
    growth: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, part: "Report") -> None:
        self.cases += part.cases
        self.outcomes += part.outcomes
        self.slowest = max(self.slowest, part.slowest)
        self.allocated = max(self.allocated, part.allocated)
        self.growth = max(self.growth, part.growth)
        self.findings += part.findings


def run_campaign(plan: Plan, report_progress: Any = None) -> Report:
    """Run all cases of a plan. `report_progress` is called now and then with the number of cases done.

    A process that dies or hangs is a finding. Its remaining cases are not run.
    """
    context = mp.get_context("spawn")
    results: Any = context.Queue()
    current = [context.Value("q", -1) for _ in range(plan.workers)]
    started = time.monotonic()
    workers = [
        context.Process(target=_work, args=(plan, n, current[n], results), daemon=True) for n in range(plan.workers)
    ]
    for worker in workers:
        worker.start()
    report = Report()
    for part in _parts(plan, workers, current, results):
        report.add(part)
        if report_progress is not None:
            report_progress(report.cases)
    report.seconds = time.monotonic() - started
    return report


def _parts(plan: Plan, workers: list[Any], current: list[Any], results: Any) -> Iterator[Report]:
    """Yield the reports of the workers until all have ended."""
    seen: dict[int, tuple[int, float]] = {}
    running = set(range(plan.workers))
    while running:
        try:
            n, part = results.get(timeout=1)
        except Empty:
            for n in sorted(running):
                wrong = _stuck(workers[n], current[n].value, seen, n)
                if wrong is not None:
                    running.discard(n)
                    case = Case(plan.kind, plan.seed, current[n].value)
                    _keep(plan, case)
                    yield Report(findings=[Finding(case, wrong)])
            continue
        if part is None:
            running.discard(n)
            workers[n].join()
        else:
            yield part


def _stuck(worker: Any, number: int, seen: dict[int, tuple[int, float]], n: int) -> str | None:
    """Return the fate of a worker that sends no reports: it died, or hangs. None if it is still running."""
    if not worker.is_alive():
        worker.join()
        return f"the process died (exit code {worker.exitcode})"
    now = time.monotonic()
    if n not in seen or seen[n][0] != number:
        seen[n] = number, now
    elif now - seen[n][1] > _HANG_SECONDS:
        worker.kill()
        worker.join()
        return f"it did not end within {_HANG_SECONDS:,} s"
    return None


def _work(plan: Plan, worker: int, current: Any, results: Any) -> None:
    """Run every n-th case, for n workers, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="cafcat-fuzz-") as folder:
        os.chdir(folder)
        try:
            _warm_up(plan.kind)
            _run_all(plan, worker, current, results)
        finally:
            os.chdir("/")
    results.put((worker, None))


def _warm_up(kind: str) -> None:
    """Read all seeds, so that imports, caches and compiled patterns do not count for any case."""
    for seed in seeds_of(kind):
        TARGETS[kind](seed.data, plainly)


def _run_all(plan: Plan, worker: int, current: Any, results: Any) -> None:
    watch, part, before = Watch(), Report(), resident_bytes()
    for number in range(plan.first + worker, plan.first + plan.count, plan.workers):
        current.value = number
        # Ends the process if a case takes too much CPU time, however busy the machine is.
        signal.setitimer(signal.ITIMER_PROF, _HANG_CPU_SECONDS)
        case = Case(plan.kind, plan.seed, number)
        outcome, wrong = watch.run(case, damaged(case))
        part.cases += 1
        part.outcomes[outcome] += 1
        if wrong is not None and len(part.findings) < _MOST_FINDINGS:
            _keep(plan, case)
            part.findings.append(Finding(case, wrong))
        if not part.cases % _REPORT_CASES or number + plan.workers >= plan.first + plan.count:
            part.slowest, part.allocated = watch.slowest, watch.largest_growth
            part.growth = resident_bytes() - before
            results.put((worker, part))
            part = Report()
    signal.setitimer(signal.ITIMER_PROF, 0)


def _keep(plan: Plan, case: Case) -> None:
    """Store the damaged file, which the case does not reproduce once mutations or vectors have changed."""
    if case.number >= 0:
        plan.findings.mkdir(parents=True, exist_ok=True)
        (plan.findings / f"{case.kind}-{case.seed}-{case.number}").write_bytes(damaged(case))

"""Very many damaged files through the readers, by several processes, each of which is watched from outside."""

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
_TELL_CASES = 10_000


class Plan(NamedTuple):
    """How many files of one kind are damaged, by how many processes, and where those that show something go. first:
    the number of the first case."""

    kind: str
    seed: int
    count: int
    workers: int
    findings: Path
    first: int = 0


class Finding(NamedTuple):
    """A file that a reader does not deal with as it should."""

    case: Case
    wrong: str

    def __str__(self) -> str:
        return f"{self.wrong}\n    again: {self.case}"


@dataclass
class Report:
    """Numbers of cases by outcome; the slowest in seconds of CPU time, memory in bytes, each with its case."""

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


def run_campaign(plan: Plan, tell: Any = None) -> Report:
    """Runs all cases of a plan. A process that dies or hangs is a finding, and what it had left to do is not done.
    `tell` is called with the number of cases done, now and then."""
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
        if tell is not None:
            tell(report.cases)
    report.seconds = time.monotonic() - started
    return report


def _parts(plan: Plan, workers: list[Any], current: list[Any], results: Any) -> Iterator[Report]:
    """What the workers say, until each has said its last."""
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
    """What happened to a worker that says nothing, if something did."""
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
    """Every so-manieth case, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="cafcat-fuzz-") as folder:
        os.chdir(folder)
        try:
            _warm_up(plan.kind)
            _run_all(plan, worker, current, results)
        finally:
            os.chdir("/")
    results.put((worker, None))


def _warm_up(kind: str) -> None:
    """What is imported, cached or compiled at first counts for none of the cases."""
    for seed in seeds_of(kind):
        TARGETS[kind](seed.data, plainly)


def _run_all(plan: Plan, worker: int, current: Any, results: Any) -> None:
    watch, part, before = Watch(), Report(), resident_bytes()
    for number in range(plan.first + worker, plan.first + plan.count, plan.workers):
        current.value = number
        # Ends the process if a case takes so long, however busy the machine is with other things.
        signal.setitimer(signal.ITIMER_PROF, _HANG_CPU_SECONDS)
        case = Case(plan.kind, plan.seed, number)
        outcome, wrong = watch.run(case, damaged(case))
        part.cases += 1
        part.outcomes[outcome] += 1
        if wrong is not None and len(part.findings) < _MOST_FINDINGS:
            _keep(plan, case)
            part.findings.append(Finding(case, wrong))
        if not part.cases % _TELL_CASES or number + plan.workers >= plan.first + plan.count:
            part.slowest, part.allocated = watch.slowest, watch.largest_growth
            part.growth = resident_bytes() - before
            results.put((worker, part))
            part = Report()
    signal.setitimer(signal.ITIMER_PROF, 0)


def _keep(plan: Plan, case: Case) -> None:
    """The file itself, for when mutations or vectors have changed."""
    if case.number >= 0:
        plan.findings.mkdir(parents=True, exist_ok=True)
        (plan.findings / f"{case.kind}-{case.seed}-{case.number}").write_bytes(damaged(case))

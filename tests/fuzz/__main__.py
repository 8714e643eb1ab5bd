"""python -m tests.fuzz: run a campaign, or repeat one of its cases, or read any file."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import Plan, Report, run_campaign
from tests.fuzz.cases import Case, Watch, damaged, plainly
from tests.fuzz.seeds import KINDS, seeds_of
from tests.fuzz.targets import TARGETS

OTHERS_SHARE = 20
"""Each other kind of file gets this fraction (1/n) of the number of archives."""


def main() -> int:
    given = _arguments()
    kinds = list(KINDS) if given.kind is None else [given.kind]
    if given.case is not None:
        return _again(Case(kinds[0], given.seed, given.case))
    if given.file is not None:
        return _file(kinds[0], Path(given.file).read_bytes())
    found = 0
    for kind in kinds:
        count = given.count if kind == kinds[0] else given.count // OTHERS_SHARE
        plan = Plan(kind, given.seed, count, given.workers, Path(given.findings).absolute(), given.first)
        print(f"{kind}: {count:,} files from {len(seeds_of(kind))} seeds, {given.workers} processes", flush=True)
        report = run_campaign(plan, lambda done: print(f"  {done:,}", file=sys.stderr, flush=True))
        found += _print_report(plan, report)
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--count", type=int, default=1_000_000, help="number of archives; a twentieth of it for each other kind"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1, help="seed of the damage")
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to continue a campaign")
    parser.add_argument("--kind", choices=list(KINDS), help="only this kind of file")
    parser.add_argument("--findings", default=".hypothesis/fuzz", help="folder for the files of findings")
    parser.add_argument("--case", type=int, help="only this case, with its outcome")
    parser.add_argument("--file", help="only this file, with its outcome")
    return parser.parse_args()


def _print_report(plan: Plan, report: Report) -> int:
    rate = report.cases / report.seconds
    print(f"  {report.cases:,} files in {report.seconds:,.0f} s: {rate:,.0f} a second")
    for outcome, count in report.outcomes.most_common():
        print(f"  {count:>10,} {outcome}")
    print(f"  slowest: {report.slowest[0]:.3f} s of CPU time (case {report.slowest[1]})")
    print(f"  processes grew by {report.growth / (1 << 20):.1f} MiB at most", end="")
    print(f"; largest single run measured: {report.allocated[0] / (1 << 20):.1f} MiB (case {report.allocated[1]})")
    for finding in report.findings:
        print(f"FOUND: {finding}")
    if report.findings:
        print(f"{len(report.findings)} findings; their files are in {plan.findings}")
    return len(report.findings) + (plan.count != report.cases)


def _again(case: Case) -> int:
    data = damaged(case)
    print(f"{len(data):,} bytes: {data[:200]!r}{'...' if len(data) > 200 else ''}")
    return _file(case.kind, data)


def _file(kind: str, data: bytes) -> int:
    with tempfile.TemporaryDirectory(prefix="cafcat-fuzz-") as folder:
        os.chdir(folder)
        outcome, wrong = Watch().run(Case(kind, 0, 0), data)
        os.chdir("/")
    print(outcome if wrong is None else f"FOUND: {wrong}")
    if outcome == "wrong":
        TARGETS[kind](data, plainly)  # again, to show the traceback
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main())

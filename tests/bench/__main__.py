"""python -m tests.bench: cafcat against its peers, in turn, as ratios in one table for docs/performance.md."""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.bench import (
    archives,
    baseline,
    batches,
    bucket,
    commit,
    epochs,
    finding,
    formats,
    growth,
    index,
    memory,
    packing,
    peers,
    reading,
    scattered,
    seaweed,
    serving,
    streams,
    verifying,
    workers,
)
from tests.bench.bench import Bench, check_room, forget_settings
from tests.bench.data import SMALL, scaled
from tests.bench.machine import described, shown_command
from tests.bench.table import NO_TARGET, Row, markdown

DOORS = (serving, streams, seaweed, batches, reading, epochs)
SUBJECTS = (
    packing,
    commit,
    finding,
    verifying,
    bucket,
    scattered,
    memory,
    index,
    growth,
    peers,
    archives,
    formats,
    workers,
    *DOORS,
)
FULL = {"scale": 1.0, "rows": 1_000_000, "rounds": 5}
QUICK = {"scale": 0.05, "rows": 100_000, "rounds": 3}
QUICK_ROWS = (
    "packing.small",
    "packing.medium",
    "packing.large",
    "commit",
    "finding",
    "verifying.verify",
    "verifying.extract",
)
CONDITIONS = ("files", "scale", "rows")

MakesRows = Callable[[Bench], Iterator[Row]]


def main() -> int:
    options = parsed(sys.argv[1:])
    wanted = chosen(options.only)
    forget_settings()
    signal.signal(signal.SIGTERM, _end)
    with tempfile.TemporaryDirectory(prefix="cafcat-bench-", dir=options.folder) as name:
        check_room(Path(name), options)
        with contextlib.closing(Bench(Path(name), options)) as bench:
            rows, failed = measured(bench, wanted)
            print(heading(bench, options))
            print(markdown(rows), flush=True)
    compare(rows, options)
    return 1 if failed else 0


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        epilog=f"Rows: {', '.join(functions())}. A subject (packing) names all of its rows.",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these rows, by subject or by name")
    parser.add_argument("--rounds", type=int, help="rounds of each row; 5, in quick runs 3")
    parser.add_argument("--scale", type=float, help="this part of the data, as 0.05; 1, in quick runs 0.05")
    parser.add_argument("--files", type=int, help="small files; 200,000 x scale")
    parser.add_argument(
        "--rows", type=int, help="rows of the catalog for look-ups; 1,000,000, in quick runs 100,000"
    )
    parser.add_argument("--growth-million", action="store_true", help="growth and memory with a million files, too")
    parser.add_argument("--install-peers", action="store_true", help="apt-get install those that are missing")
    parser.add_argument("--folder", type=Path, help="make the temporary folder in this one; else TMPDIR")
    parser.add_argument(
        "--quick", action="store_true", help="less of it in two minutes, compared with the baseline"
    )
    parser.add_argument("--save-baseline", action="store_true", help="store the ratios of this run as the baseline")
    given = parser.parse_args(arguments)
    for name, value in (QUICK if given.quick else FULL).items():
        if getattr(given, name) is None:
            setattr(given, name, value)
    if given.files is None:
        given.files = scaled(SMALL, given.scale)
    given.only = given.only or (QUICK_ROWS if given.quick else None)
    if given.save_baseline and not given.quick:
        parser.error("--save-baseline goes with --quick: the baseline is of such runs")
    if min(given.rounds, given.files, given.rows) < 1 or not given.scale > 0:
        parser.error("--rounds, --files, --rows and --scale are more than nothing")
    return given


def functions() -> dict[str, MakesRows]:
    """Return the functions that yield rows, by subject.name, or by the subject alone if it has one function."""
    found = {}
    for module in SUBJECTS:
        subject = module.__name__.rpartition(".")[2]
        for function in module.ROWS:
            found[subject if len(module.ROWS) == 1 else f"{subject}.{function.__name__}"] = function
    return found


def chosen(only: Sequence[str] | None) -> dict[str, MakesRows]:
    """Return the functions that are chosen by name. Exits if a name is unknown."""
    everything = functions()
    for name in only or ():
        if not any(_names(name, row) for row in everything):
            raise SystemExit(f"there is no {name}: {', '.join(everything)}")
    return {
        row: make for row, make in everything.items() if only is None or any(_names(name, row) for name in only)
    }


def _names(name: str, row: str) -> bool:
    return row == name or row.startswith(f"{name}.")


def measured(bench: Bench, wanted: dict[str, MakesRows]) -> tuple[list[Row], int]:
    """Return all rows, and the number of functions that failed. A failure does not stop the others."""
    rows: list[Row] = []
    failed = 0
    for name, make in wanted.items():
        bench.say(f"{time.strftime('%H:%M:%S')} {name} ...")
        try:
            for row in make(bench):
                bench.say(f"  {' | '.join(row.cells())}")
                rows.append(row)
        except NotImplementedError as error:
            bench.say(f"{name} SKIPPED: {error}")
            rows.append(Row(name, name, "—", NO_TARGET, missing=f"skipped: {error}"))
        except Exception as error:
            failed += 1
            bench.say(f"{name} FAILED: {type(error).__name__}: {error}")
            rows.append(Row(name, name, "—", NO_TARGET, missing=f"failed: {type(error).__name__}"))
    return rows, failed


def heading(bench: Bench, options: argparse.Namespace) -> str:
    """Return the lines above the table."""
    version = str(bench.home().one("SHOW server_version"))
    command = shown_command(sys.argv[1:])
    rounds = f"{options.rounds} rounds in turn, median [min-max]; ratio: cafcat to the peer"
    return f"`{command}`, {described(bench.folder, version)}\n{rounds}.\n"


def compare(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Print the warnings about the baseline in quick runs, and store the run if requested."""
    conditions: dict[str, Any] = {name: getattr(options, name) for name in CONDITIONS} | {"CPUs": os.cpu_count()}
    if options.quick:
        warned = baseline.warnings(rows, baseline.load(baseline.FILE), conditions)
        print("", *(warned or ["Nothing is worse than the baseline by 20 % or more."]), sep="\n")
    if options.save_baseline:
        baseline.save(baseline.FILE, rows, conditions)
        print(f"\nThe baseline is now this run: {baseline.FILE.name}")


def _end(number: int, frame: object) -> NoReturn:
    """Exit after SIGTERM. The servers are stopped and the folder is removed, as after Ctrl-C."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())

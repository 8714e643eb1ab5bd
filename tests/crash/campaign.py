"""The crash campaign: SIGKILL before and after every boundary call of every verb, then recover, then the checker.

`python -m tests.crash.campaign` (or `make crash`) runs all of it, with a process for each core, prints a table, and
ends with 1 if anything was found.
"""

import argparse
import contextlib
import functools
import itertools
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.crash import archives
from tests.crash.checker import Damaged, Seen, crc32c, problems
from tests.crash.places import Bucket, Folder, Place
from tests.crash.verbs import VERBS, Verb, available_verbs
from tests.crash.world import Outcome, State, World, fast_databases, zygote
from tests.s3_servers.kinds import DEFAULT_KIND, KINDS
from tests.worlds.memory import memory_folder
from tests.worlds.servers.s3_server import kind_of_server, new_bucket
from tests.worlds.servers.services import Databases

DIED = "a process of ingest died (exit code -9)"
PARTIAL = re.compile(r"\.cafcat-[0-9a-f]{16}\.partial")
_MOST_UNKILLED = 5

__all__ = ["Found", "Tally", "crash", "spread", "world"]


class Found(NamedTuple):
    """A problem that was found after a kill at boundary `number`."""

    verb: str
    store: str
    number: int
    label: str
    when: str
    problem: str


@dataclass
class Tally:
    """The result of a campaign: kills by kind of boundary, and the problems."""

    kills: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class _Trial:
    """One verb in one world: the state before the verb, and the state after it when it is not killed."""

    world: World
    verb: Verb
    command: list[str]
    state: State
    damaged: Damaged
    before: Seen
    after: Seen
    boundaries: int
    outputs: dict[str, bytes]
    shape: list[object]

    def run(self, kill_at: int | None = None) -> Outcome:
        return self.world.cafcat(*self.command, code=None, kill_at=kill_at, victim=self.verb.victim)

    def when_killed(self, outcome: Outcome) -> Iterator[str]:
        """Yield the problems of a team of which one process, or all, was killed.

        The leader must report the death of a worker, and no process may remain.
        """
        victim = self.verb.victim
        if victim is None:
            return
        if outcome.left:
            yield f"{len(outcome.left)} processes are still running"
        if victim.number == 0 or victim.everybody:
            if outcome.code != -9:
                yield f"it ended with {outcome.code}: {outcome.output}"
        elif "after pipe finished" in outcome.passed:  # the leader needs no more messages of this worker
            if outcome.code or self.world.look().live != self.after.live:
                yield f"it had finished, and it ended with {outcome.code}: {outcome.output}"
        elif outcome.code != 1 or DIED not in outcome.output:
            yield f"the death of a worker was not reported: it ended with {outcome.code}: {outcome.output}"
        dead_packers = 2 if victim.everybody else min(victim.number, 1)
        for kind, keys in self._open().items():
            if len(keys) > 2 * dead_packers:  # one chunk is being filled, and one is being committed
                remains = f"{keys}; {self._chunks()}; {outcome}"
                yield f"{len(keys)} {kind} are left by {dead_packers} dead packers: {remains}"

    def _open(self) -> dict[str, list[str]]:
        writing = self.world.sql("SELECT object_key FROM chunks WHERE state = 'writing'")
        uploads = [key for place in self.world.places for key in place.uploads()]
        return {"open chunks": [key for (key,) in writing], "uploads": uploads}

    def _chunks(self) -> list[object]:
        return self.world.sql(
            "SELECT object_key, state, upload_id, begun_at, committed_at, abandoned_at, deleted_at FROM chunks"
        )

    def after_kill(self) -> Iterator[str]:
        """Recover, and yield the problems that remain after the kill."""
        outcome = self.world.cafcat("recover", "-q", code=None)
        if outcome.code:
            yield f"recover ended with {outcome.code}: {outcome.output}"
        seen = self.world.look()
        yield from problems(seen, self.damaged)
        yield from self._lost(seen)
        yield from self._outputs(self.state.outputs, self.outputs)

    def after_all(self) -> Iterator[str]:
        """Run the verb again, and yield the problems after that."""
        outcome = self.world.cafcat(*self.command, code=None)
        if outcome.code not in self.verb.codes:
            yield f"run again it ended with {outcome.code}: {outcome.output}"
        seen = self.world.look()
        yield from problems(seen, self.damaged)
        if seen.live != self.after.live:
            yield f"run again it has other live files: {_difference(self.after.live, seen.live)}"
        if self._shape() != self.shape:
            yield f"run again it leaves {self._shape()}, not {self.shape}"
        yield from self._outputs(self.outputs)

    def _lost(self, seen: Seen) -> Iterator[str]:
        before, after = self.before.live, self.after.live
        if self.verb.is_atomic and seen.live not in (before, after):
            yield f"neither all nor nothing: {_difference(before, seen.live)}"
        for path in before.keys() | after.keys() | seen.live.keys():
            if seen.live.get(path) not in (before.get(path), after.get(path)):
                yield f"{path} has neither its old content nor its new one"
        if seen.objects.get(seen.outside) != self.before.objects.get(seen.outside):
            yield "the third-party archives have changed"

    def _outputs(self, *allowed: Mapping[str, bytes]) -> Iterator[str]:
        """Yield a problem unless each output is whole or absent, with at most one temporary file beside it."""
        found = self.world.outputs()
        partial = [name for name in found if PARTIAL.fullmatch(name)]
        whole = {name: data for name, data in found.items() if name not in partial}
        if whole not in allowed:
            yield f"the folder of outputs has {sorted(whole)}, or their bytes are wrong"
        if len(partial) > bool(self.verb.output):
            yield f"these temporary files are left: {partial}"

    def _shape(self) -> list[object]:
        return [self.world.sql(query) for query in self.verb.shape]


def prepare(world: World, verb: Verb) -> _Trial:
    """Return a trial of the verb, after running it once without a kill."""
    world.begin()
    command = verb.prepare(world)
    damaged = world.damaged
    before = world.look()
    state = world.save()
    world.restore(state)
    outcome = world.cafcat(*command, victim=verb.victim)
    assert outcome.passed
    after = world.look()
    assert not problems(after, damaged), problems(after, damaged)
    outputs = world.outputs()
    if verb.output:
        check_output(verb.output, outputs[verb.output], before)
    trial = _Trial(world, verb, command, state, damaged, before, after, len(outcome.passed), outputs, [])
    trial.shape = trial._shape()
    return trial


def check_output(name: str, data: bytes, before: Seen) -> None:
    """Check that a written archive has the files of the catalog, or those of the archive from which it was made."""
    expected = {(path, crc32c(content)) for path, content in before.live.items()}
    if not expected:
        [(other, other_data)] = before.objects[before.outside].items()
        expected = _listed(other, other_data)
    assert _listed(name, data) == expected


def _listed(name: str, data: bytes) -> set[tuple[str, int | None]]:
    return {(entry.path, entry.crc32c) for entry in archives.parse(archives.KINDS[Path(name).suffix], data)[2]}


def crash(world: World, name: str, store: str, numbers: Callable[[int], Iterable[int]]) -> Tally:
    """Kill a verb at boundaries until a run ends before its boundary.

    Threads and processes do not always make the same calls. So a run must end before its boundary several times
    in a row.

    Args:
        world: the world of the verb.
        name: of the verb.
        store: kind of the store, for the findings.
        numbers: returns the boundaries at which to kill, given their number in a run without a kill.
    """
    tally, begun = Tally(), time.monotonic()
    trial = prepare(world, VERBS[name])
    unkilled = 0
    for number in numbers(trial.boundaries):
        world.restore(trial.state)
        outcome = trial.run(number)
        if outcome.label is None:
            assert (outcome.code, outcome.left) == (0, ()), outcome
            unkilled += 1
            if unkilled == _MOST_UNKILLED:
                break
            continue
        unkilled = 0
        assert trial.verb.victim or outcome.code == -9, outcome
        world.settle()
        tally.kills[outcome.label.split(" ")[1]] += 1
        looks = {"killed": trial.when_killed(outcome), "after recover": trial.after_kill()}
        for when, found in (looks | {"run again": trial.after_all()}).items():
            tally.found += [Found(name, store, number, outcome.label, when, problem) for problem in found]
    world.close()
    tally.seconds = time.monotonic() - begun
    return tally


def spread(number: int) -> Callable[[int], Iterable[int]]:
    """Return a function that selects this many boundaries, evenly spaced, without the first quarter.

    Few things have happened before the first quarter ends.
    """
    return lambda boundaries: range(boundaries // 4, boundaries, max(1, boundaries * 3 // 4 // number))


def _difference(expected: dict[str, bytes], found: dict[str, bytes]) -> str:
    missing, further = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    other = sorted(path for path in expected.keys() & found.keys() if expected[path] != found[path])
    return f"missing {missing}, further {further}, other {other}"


@contextlib.contextmanager
def world(databases: Databases, store: str, folder: Path) -> Iterator[World]:
    """Yield a world with two stores of one kind, "folder" or "s3", in its own folder."""
    with contextlib.ExitStack() as cleanup:
        environment: dict[str, str] = {}
        places: list[Place] = [Folder(folder / name) for name in ("store", "second", "outside")]
        if store == "s3":
            (folder / "s3").mkdir()
            server = cleanup.enter_context(kind_of_server(KINDS[DEFAULT_KIND], folder / "s3"))
            environment = server.environ()
            buckets = [Bucket(server, new_bucket(server.client())) for _ in places]
            for bucket in buckets:
                cleanup.callback(bucket.client.close)
            places = list(buckets)
        *stores, outside = places
        made = World(folder, databases, stores, cleanup.enter_context(zygote()), environment, outside=outside)
        cleanup.callback(made.close)
        yield made


class _Task(NamedTuple):
    """A part of the boundaries of a verb: every `step`-th from `first` on."""

    verb: str
    store: str
    first: int
    step: int


def _run(conninfo: str, task: _Task) -> tuple[_Task, Tally]:
    """Run a task in a process of its own."""
    folder = Path(tempfile.mkdtemp(prefix="cafcat-crash-", dir=memory_folder()))
    try:
        with contextlib.closing(Databases(conninfo)) as databases, world(databases, task.store, folder) as made:
            return task, crash(made, task.verb, task.store, lambda _: itertools.count(task.first, task.step))
    except Exception:
        found = Found(task.verb, task.store, 0, "", "the campaign itself", traceback.format_exc())
        return task, Tally(found=[found])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _campaign(tasks: list[_Task], processes: int) -> dict[tuple[str, str], Tally]:
    tallies: dict[tuple[str, str], Tally] = {}
    with (
        fast_databases() as databases,
        multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool,
    ):
        for task, tally in pool.imap_unordered(functools.partial(_run, databases.conninfo), tasks):
            whole = tallies.setdefault((task.verb, task.store), Tally())
            whole.kills += tally.kills
            whole.found += tally.found
            whole.seconds += tally.seconds
            print(f"{task.verb} {task.store}: {tally.kills.total()} killed, {len(tally.found)} found", flush=True)
    return tallies


def table(tallies: dict[tuple[str, str], Tally]) -> list[str]:
    kinds = ("file", "s3", "sql", "pipe")
    heads = ("verb", "store", "kill points", "at files", "at S3", "at SQL", "at pipes", "findings", "seconds")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for (verb, store), tally in sorted(tallies.items()):
        numbers = [tally.kills.total(), *(tally.kills[kind] for kind in kinds), len(tally.found)]
        lines.append(f"| {verb} | {store} | {' | '.join(map(str, numbers))} | {tally.seconds:.0f} |")
    total = sum(tally.kills.total() for tally in tallies.values())
    found = sum(len(tally.found) for tally in tallies.values())
    return [*lines, f"{total} kill points, {found} findings"]


def main() -> int:
    parser = argparse.ArgumentParser(description="SIGKILL at every boundary of every verb; then check.")
    parser.add_argument("--verb", action="append", choices=VERBS, help="only this verb; may be repeated")
    parser.add_argument("--store", action="append", choices=("folder", "s3"))
    parser.add_argument("--every", type=int, default=1, help="only every n-th boundary")
    parser.add_argument("-j", type=int, default=os.cpu_count() or 1, help="number of processes")
    given = parser.parse_args()
    stores, verbs = given.store or ["folder", "s3"], given.verb or available_verbs()
    parts = range(given.j)
    tasks = [
        _Task(verb, store, 1 + part * given.every, given.every * given.j)
        for store in reversed(stores)
        for verb in verbs
        for part in parts
    ]
    tallies = _campaign(tasks, given.j)
    for found in [found for tally in tallies.values() for found in tally.found]:
        print(*found, sep=" | ")
    print(*table(tallies), sep="\n")
    return any(tally.found for tally in tallies.values())


if __name__ == "__main__":
    sys.exit(main())

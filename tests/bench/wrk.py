"""GETs of many small files by wrk, in random order: their rate, their latencies, and the CPU time of the server."""

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench.programs import find
from tests.bench.servers import Served
from tests.bench.table import Row, Target, at_least, figure, pair_ratios
from tests.worlds.aws_signing import Signer

__all__ = ["CONNECTIONS", "Load", "Loads", "Subject", "http_requests", "loads_in_turn", "rows_of", "s3_requests"]

CONNECTIONS = 32
_LUA = """
local requests = {}
function init(args)
    local file = io.open(args[1], "rb")
    for request in file:read("*a"):gmatch("[^%z]+") do requests[#requests + 1] = request end
    math.randomseed(20260104)
end
function request() return requests[math.random(#requests)] end
function done(summary, latency, _)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.timeout + errors.status
    io.write(string.format('\\n{"gets": %d, "seconds": %f, "p50": %f, "p99": %f, "failed": %d, "size": %d}\\n',
        summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6,
        failed, summary.bytes))
end
"""


class Load(NamedTuple):
    """A measurement of one server. p50 and p99 are latencies in seconds; the CPU seconds are the server's."""

    gets: int
    seconds: float
    p50: float
    p99: float
    cpu_seconds: float
    database_seconds: float

    @property
    def rate(self) -> float:
        return self.gets / self.seconds

    @property
    def cpu_rate(self) -> float:
        """GETs in a CPU second of the server and its database."""
        return self.gets / (self.cpu_seconds + self.database_seconds)


Loads = Mapping[str, Sequence[Load]]


class Subject(NamedTuple):
    """A server, and a function that returns the GETs, each as the bytes that a client sends."""

    served: Served
    requests: Callable[[Served], Sequence[bytes]]


def http_requests(served: Served, targets: Sequence[str]) -> list[bytes]:
    """Return a GET for each target. targets: paths, in percent-encoding."""
    return [f"GET {target} HTTP/1.1\r\nHost: {served.host}\r\n\r\n".encode() for target in targets]


def s3_requests(served: Served, targets: Sequence[str]) -> list[bytes]:
    """Return a GET for each target, signed now if the server has an access key."""
    if not served.access_key:
        return http_requests(served, targets)
    signer, now = Signer(served.access_key, served.secret_key), time.time()
    found = []
    for target in targets:
        headers = signer.headers("GET", target, {"Host": served.host}, now)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        found.append(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode())
    return found


def loads_in_turn(folder: Path, subjects: Mapping[str, Subject], rounds: int, seconds: float) -> Loads:
    """Return the loads of each server by round, after one round that is not counted."""
    loads: dict[str, list[Load]] = {name: [] for name in subjects}
    for turn in range(rounds + 1):
        for name, subject in subjects.items():
            load = _load(folder, subject, seconds)
            if turn:
                loads[name].append(load)
    return loads


def _load(folder: Path, subject: Subject, seconds: float) -> Load:
    script, requests = folder / "wrk.lua", folder / "wrk.requests"
    script.write_text(_LUA)
    requests.write_bytes(b"\0".join(subject.requests(subject.served)))
    command = [find("wrk"), "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "-s", script]
    before = subject.served.cpu_seconds()
    done = subprocess.run(
        [*command, subject.served.url, "--", requests], capture_output=True, text=True, check=True
    )
    own, database = (end - begin for begin, end in zip(before, subject.served.cpu_seconds(), strict=True))
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["failed"], done.stdout
    return Load(found["gets"], found["seconds"], found["p50"], found["p99"], own, database)


def rows_of(
    name: str, work: str, loads: Loads, pair: tuple[str, str], target: float | None, per: str = ""
) -> tuple[Row, Row]:
    """Return two rows for a pair of servers, ours first: GETs in a CPU second of the server, and GETs in a second.

    Args:
        name: of the rows.
        work: description of the GETs.
        loads: the measurements.
        pair: names of our server and of the peer.
        target: the smallest ratio for the first row.
        per: more about the first row.
    """
    ours, theirs = (loads[one] for one in pair)
    by_cpu = [[load.cpu_rate for load in side] for side in (ours, theirs)]
    by_time = [[load.rate for load in side] for side in (ours, theirs)]
    shown = "; ".join(f"{one} {figure(rates)}" for one, rates in zip(pair, by_cpu, strict=True))
    share = statistics.median(load.database_seconds / load.cpu_seconds for load in ours)
    absolute = f"GETs in a CPU second: {shown}. The CPU time of Postgres, {share:.0%} of cafcat's, is included{per}"
    bound = Target(None, at_least=True) if target is None else at_least(target)
    first = Row(f"{name} cpu", f"{work}, in a CPU second", pair[1], bound, pair_ratios(*by_cpu), absolute)
    latencies = "; ".join(
        f"{one} {figure(rates, 'GETs/s')}, p50 {_milliseconds(side, 'p50')}, p99 {_milliseconds(side, 'p99')}"
        for one, rates, side in zip(pair, by_time, (ours, theirs), strict=True)
    )
    open_target = Target(None, at_least=True)
    return first, Row(
        f"{name} rate", f"{work}, in a second", pair[1], open_target, pair_ratios(*by_time), latencies
    )


def _milliseconds(loads: Sequence[Load], name: str) -> str:
    return figure([getattr(load, name) * 1000 for load in loads], "ms")

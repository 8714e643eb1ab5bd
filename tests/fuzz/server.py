"""python -m tests.fuzz.server: send very many odd requests to a running `cafcat serve`.

No answer may be an error of the server, or have bytes of a file that was not asked for, or names of its folders. No
line of its log may have an error. Afterwards the server has as many open files, connections and threads as at the
start, and its memory has not grown.
"""

import argparse
import contextlib
import json
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.e2e.conftest import Cafcat
from tests.fuzz.answers import Judge, Wrong, responses
from tests.fuzz.requests import FILES, http_request, s3_request
from tests.worlds.aws_signing import Signer
from tests.worlds.file_server import FileServer, s3_side, serving
from tests.worlds.usage import Usage, usage_of
from tests.worlds.waiting import PATIENCE_SECONDS

__all__ = ["DOORS", "Plan", "Report", "explore", "served"]

DOORS = ("http", "s3")
MOST_GROWTH_BYTES = 8 << 20
"""Limit of the growth of the server's memory after the first tenth of the requests."""
_WAIT_SECONDS = 0.5
"""After this time without an answer, the client closes its side: the request has no end."""
_SETTLE_SECONDS = 20
_MOST_FINDINGS = 20
_END = b"GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Plan(NamedTuple):
    """Requests to send.

    Attributes:
        door: "http" or "s3".
        count: number of requests.
        seed: of the random requests.
        first: number of the first request.
        connections: how many requests are in flight.
    """

    door: str
    count: int
    seed: int = 1
    first: int = 0
    connections: int = 16


@dataclass
class Report:
    """Results. statuses: number of responses by status; unanswered: requests without any; usage: of the server."""

    statuses: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    seconds: float = 0.0
    usage: list[Usage] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


class Target(NamedTuple):
    """A running server, and an access key for the folder "mine"."""

    server: FileServer
    s3_port: int
    signer: Signer
    tags: dict[str, dict[bytes, str]]
    secrets: list[bytes]


@contextlib.contextmanager
def served(cafcat: Cafcat) -> Iterator[Target]:
    """Ingest FILES, and serve them by both protocols."""
    for path, content in FILES.items():
        file = cafcat.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    cafcat("ingest", *sorted({path.split("/")[0] for path in FILES}))
    keys = [cafcat("keys", "add", *more, "--json").document for more in (["--prefix", "mine"], [])]
    mine, whole = (Signer(key["access_key_id"], key["secret_access_key"]) for key in keys)
    with serving(cafcat, cafcat.folder / "log", "--s3-port", "0") as server:
        found = Target(server, s3_side(server).port, mine, {}, _secrets(cafcat, keys))
        yield found._replace(tags={"http": _tags(found, None), "s3": _tags(found, whole)})


def _secrets(cafcat: Cafcat, keys: list[dict[str, Any]]) -> list[bytes]:
    found = [str(cafcat.folder), "postgresql", *(key["secret_access_key"] for key in keys)]
    return [text.encode() for text in found]


def _tags(target: Target, signer: Signer | None) -> dict[bytes, str]:
    """Return the paths of FILES by their entity tags, and check the files. With a signer: over the S3 protocol."""
    found = {}
    for path, content in FILES.items():
        port = target.server.port if signer is None else target.s3_port
        where, host = ("/files/" if signer is None else "/") + quote(path), f"127.0.0.1:{port}"
        headers = {"Host": host} if signer is None else signer.headers("GET", where, {"Host": host}, time.time())
        lines = [f"GET {where} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        answer = send(port, "\r\n".join([*lines, "", ""]).encode())
        response = responses(answer)[0]
        assert (response.status, response.body) == (200, content), answer[:1000]
        found[response.headers[b"etag"]] = path
    assert len(found) == len(FILES)
    return found


def send(port: int, request: bytes) -> bytes:
    """Return everything that the server sends for a request, and for one behind it that closes the connection."""
    answer = bytearray()
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        connection.settimeout(_WAIT_SECONDS)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(request + _END)
            while True:
                try:
                    part = connection.recv(1 << 18)
                except TimeoutError:
                    if connection.gettimeout() == PATIENCE_SECONDS:
                        raise
                    connection.shutdown(socket.SHUT_WR)
                    connection.settimeout(PATIENCE_SECONDS)
                    continue
                if not part:
                    break
                answer += part
    return bytes(answer)


def explore(target: Target, plan: Plan) -> Report:
    """Send the requests of a plan. The server is measured when it is warm, after 10 % and 50 %, and at the end."""
    report = Report()
    began = time.monotonic()
    judge = Judge(target.tags[plan.door], target.secrets, is_s3=plan.door == "s3")
    warm = min(max(1000, plan.count // 100), plan.count)
    _run(target, plan._replace(first=plan.first + plan.count, count=warm), judge, Report())
    report.usage.append(_settled(target, "warm"))
    done = 0
    for share in (10, 50, 100):
        until = plan.count * share // 100
        _run(target, plan._replace(first=plan.first + done, count=until - done), judge, report)
        done = until
        report.usage.append(_settled(target, f"{share} %", report.usage[0]))
    report.seconds = time.monotonic() - began
    report.findings += _of_usage(report.usage, plan.connections) + _of_log(target.server)
    return report


def _run(target: Target, plan: Plan, judge: Judge, report: Report) -> None:
    numbers = iter(range(plan.first, plan.first + plan.count))
    lock = threading.Lock()

    def work() -> None:
        while len(report.findings) < _MOST_FINDINGS:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            statuses, wrong = _one(target, plan, judge, number)
            with lock:
                report.statuses.update(statuses)
                report.unanswered += not statuses
                if wrong is not None:
                    report.findings.append(wrong)

    threads = [threading.Thread(target=work) for _ in range(plan.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _one(target: Target, plan: Plan, judge: Judge, number: int) -> tuple[list[int], str | None]:
    """Send a request. Return the statuses of its answer, and what is wrong with it."""
    random = Random(f"{plan.door} {plan.seed} {number}")
    port = target.s3_port if plan.door == "s3" else target.server.port
    is_s3 = plan.door == "s3"
    request = s3_request(random, target.signer, f"127.0.0.1:{port}") if is_s3 else http_request(random)
    try:
        return judge.check(request, send(port, request)), None
    except (Wrong, OSError) as error:
        again = f"python -m tests.fuzz.server --door {plan.door} --seed {plan.seed} --first {number} --count 1"
        return [], f"{error}\n    request: {request[:2000]!r}\n    again: {again}"


def _settled(target: Target, at: str, before: Usage | None = None) -> Usage:
    """Return the usage when all connections are closed, or after some seconds."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    time.sleep(1)
    usage = usage_of(target.server.process.pid, at)
    while before is not None and usage.sockets > before.sockets and time.monotonic() < deadline:
        time.sleep(0.5)
        usage = usage_of(target.server.process.pid, at)
    return usage


def _of_usage(usage: list[Usage], connections: int) -> list[str]:
    """Return what is wrong with the usage. Threads and their connections to the database are made when needed."""
    warm, tenth, _, end = usage
    wrong = []
    if end.resident_bytes - tenth.resident_bytes > MOST_GROWTH_BYTES:
        wrong.append("the memory of the server grew")
    if end.files > warm.files + connections or end.threads > warm.threads + connections:
        wrong.append("the server has more open files or threads than at the start")
    return wrong


def _of_log(server: FileServer) -> list[str]:
    """Return the lines of the log that have an error. A wait lets the log write its last lines."""
    time.sleep(0.5)
    with server.log.open() as lines:
        found = [line.strip() for line in lines if "error" in json.loads(line)]
    return [f"in the log: {line}" for line in found[:_MOST_FINDINGS]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.server", description=__doc__)
    parser.add_argument("--door", choices=DOORS, help="only this side of the server")
    parser.add_argument("--count", type=int, default=100_000, help="number of requests for each side")
    parser.add_argument("--seed", type=int, default=1, help="seed of the requests")
    parser.add_argument("--first", type=int, default=0, help="number of the first request")
    parser.add_argument("--connections", type=int, default=16, help="requests in flight")
    given = parser.parse_args()
    found = 0
    with tempfile.TemporaryDirectory(prefix="cafcat-fuzz-") as folder:
        cafcat = Cafcat(Path(folder), None)
        try:
            with served(cafcat) as target:
                for door in DOORS if given.door is None else [given.door]:
                    plan = Plan(door, given.count, given.seed, given.first, given.connections)
                    found += _printed(plan, explore(target, plan))
        finally:
            cafcat("db", "stop")
    return 1 if found else 0


def _printed(plan: Plan, report: Report) -> int:
    rate = plan.count / report.seconds
    print(f"{plan.door}: {plan.count:,} requests in {report.seconds:,.0f} s, {rate:,.0f} a second", flush=True)
    statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(report.statuses.items()))
    print(f"  responses by status: {statuses}; requests without a response: {report.unanswered:,}")
    for usage in report.usage:
        print(f"  {usage}")
    for finding in report.findings:
        print(f"FOUND: {finding}")
    return len(report.findings)


if __name__ == "__main__":
    sys.exit(main())

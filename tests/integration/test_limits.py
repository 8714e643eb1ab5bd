"""Limits of requests and bytes for several processes together, and the pause of a run, with a real database."""

import contextlib
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.errors import InvalidInput, NotFound
from cafcat.model import RunState
from cafcat.operations.shared_limits import SharedLimits, with_shared_limits
from cafcat.repository import Repository
from cafcat.support.traffic import TRAFFIC, Share
from tests.integration.test_s3_ingest import Bucket
from tests.worlds.listeners import Heard
from tests.worlds.servers.s3_proxy import Fault, Request, S3Proxy
from tests.worlds.servers.s3_server import S3Server
from tests.worlds.servers.web_server import Handler, WebServer, web_server  # noqa: F401 - a fixture
from tests.worlds.traffic import in_flight
from tests.worlds.waiting import wait_until

WORKER = """
import socket, sys, threading, time
import cafcat
from cafcat.operations.shared_limits import SharedLimits
from cafcat.support.traffic import TRAFFIC

url, port = sys.argv[1], int(sys.argv[2])
repository = cafcat.open(database_url=url, home="/nowhere")
shared = SharedLimits(["s3://b"])

def send():
    while True:
        with TRAFFIC.request("s3://b/x"):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.recv(1)

shared.renew(repository.session.catalog)
for _ in range(12):
    threading.Thread(target=send, daemon=True).start()
print("ready", flush=True)
while sys.stdin.readline():
    shared.renew(repository.session.catalog)
    print("renewed", flush=True)
"""


class Counter:
    """A server that counts how many requests are there at the same time. Each takes five milliseconds."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._socket.getsockname()[1]
        self.most = self.now = self.total = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=(self._socket.accept()[0],), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with self._lock:
            self.now, self.total = self.now + 1, self.total + 1
            self.most = max(self.most, self.now)
        time.sleep(0.005)
        with self._lock:  # before the answer, after which the client may begin its next request
            self.now -= 1
        with contextlib.suppress(OSError), connection:
            connection.send(b".")

    def watch(self, seconds: float) -> tuple[int, int]:
        """Return the most requests at the same time, and their number, in some seconds from now on."""
        with self._lock:
            self.most, before = self.now, self.total
        time.sleep(seconds)
        return self.most, self.total - before

    def close(self) -> None:
        self._socket.close()


class Worker:
    """A process that sends as many requests as it may."""

    def __init__(self, database_url: str, port: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, database_url, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def renew(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("renew\n")
        self.process.stdin.flush()
        assert self.hear() == "renewed\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def counter() -> Iterator[Counter]:
    counter = Counter()
    yield counter
    counter.close()


@pytest.fixture
def start(database_url: str, counter: Counter) -> Iterator[Callable[[], Worker]]:
    workers: list[Worker] = []

    def start() -> Worker:
        workers.append(Worker(database_url, counter.port))
        assert workers[-1].hear() == "ready\n"
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()


@pytest.fixture
def repository(database_url: str, tmp_path: Path) -> Iterator[Repository]:
    with cafcat.open(database_url=database_url, home=tmp_path / "home") as repository:
        yield repository


def shares(database_url: str) -> list[int]:
    with psycopg.connect(database_url) as connection:
        return [
            row[0] for row in connection.execute("SELECT requests FROM limit_shares ORDER BY requests").fetchall()
        ]


def renew_all(workers: list[Worker]) -> None:
    """Renew several times, with pauses in which the requests end that were in flight."""
    for _ in range(4):
        for worker in workers:
            worker.renew()
        time.sleep(0.05)


def settled(counter: Counter, workers: list[Worker], expected: int) -> bool:
    """Renew until the processes together have so many requests at the same time.

    Shares move between processes every 15 seconds, and a part of them is unused then until the next renewal.
    """
    for _ in range(10):
        renew_all(workers)
        if counter.watch(0.3)[0] == expected:
            return True
    return False


def test_processes_together_never_exceed_a_limit_and_use_all_of_it(
    repository: Repository, database_url: str, counter: Counter, start: Callable[[], Worker]
) -> None:
    repository.set_limit("s3://b", requests=7)
    workers = [start()]
    assert counter.watch(0.3)[0] == 7
    workers += [start(), start()]
    assert shares(database_url) == [0, 0, 7]  # the first one has not given anything back yet
    assert counter.watch(0.3)[0] <= 7
    counter.most = 0
    renew_all(workers)
    assert counter.most <= 7
    assert settled(counter, workers, 7)
    assert set(shares(database_url)) <= {2, 3}
    wait_until(lambda: counter.watch(0.5)[1] > 100)
    assert [row.workers for row in repository.limits()] == [3]


def test_a_changed_limit_takes_effect_at_the_next_renewal(
    repository: Repository, counter: Counter, start: Callable[[], Worker]
) -> None:
    repository.set_limit("s3://b", requests=2)
    workers = [start(), start()]
    assert settled(counter, workers, 2)
    repository.set_limit("s3://b", requests=10)
    assert settled(counter, workers, 10)
    repository.set_limit("s3://b", requests=1)
    assert settled(counter, workers, 1)
    repository.remove_limit("s3://b")
    renew_all(workers)
    wait_until(lambda: counter.watch(0.3)[0] > 12)


def test_the_share_of_a_dead_process_goes_to_the_others(
    repository: Repository, database_url: str, counter: Counter, start: Callable[[], Worker]
) -> None:
    repository.set_limit("s3://b", requests=6)
    workers = [start(), start()]
    renew_all(workers)
    workers[0].kill()
    assert settled(counter, workers[1:], 3)  # the dead process may be alive behind a broken network
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE limit_shares SET expires_at = expires_at - interval '45 seconds'")
    assert settled(counter, workers[1:], 6)


def test_shares_are_renewed_by_any_thread_and_given_back(repository: Repository, database_url: str) -> None:
    repository.set_limit("s3://b/in", requests=4, in_flight_bytes=1000, bytes_per_second=5000)
    shared, catalog = SharedLimits(["s3://b", "/a/folder"]), repository.session.catalog
    thread = threading.Thread(target=shared.renew, args=(catalog,))
    thread.start()
    thread.join()
    assert shares(database_url) == [4]
    shared.give_back(catalog)
    assert shares(database_url) == []
    SharedLimits(["s3://other"]).renew(catalog)
    assert shares(database_url) == []


def test_shares_are_given_back_by_the_last_thread_of_a_process(repository: Repository) -> None:
    repository.set_limit("s3://bucket", requests=3)
    with with_shared_limits(repository.session, ["s3://bucket"]):
        with with_shared_limits(repository.session, ["s3://bucket"]):
            assert repository.limits()[0].workers == 1
        assert repository.limits()[0].workers == 1
    assert repository.limits()[0].workers == 0


def test_requests_in_flight_are_given_back_when_they_end(repository: Repository, database_url: str) -> None:
    repository.set_limit("s3://b", requests=4)
    limits, shared = repository.session.catalog.limits, SharedLimits(["s3://b"])

    def renew_another() -> int | None:
        return limits.renew("another", ["s3://b"], None, lambda _shares: {}).shares["s3://b"].requests

    shared.renew(repository.session.catalog)
    with contextlib.ExitStack() as stack:
        for n in range(4):
            stack.enter_context(in_flight(TRAFFIC, f"s3://b/{n}"))
        assert renew_another() == 0
        shared.renew(repository.session.catalog)  # its part is 2 now, but 4 requests are in flight
        assert shares(database_url) == [0, 4]
        assert renew_another() == 0
    shared.renew(repository.session.catalog)
    assert renew_another() == 2
    shared.give_back(repository.session.catalog)
    assert renew_another() == 4


def test_wrong_limits_are_refused(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no limit is given"):
        repository.set_limit("s3://b")
    with pytest.raises(InvalidInput, match="at least 1"):
        repository.set_limit("s3://b", requests=0)
    with pytest.raises(InvalidInput, match="on a network"):
        repository.set_limit(tmp_path.as_uri(), requests=1)
    with pytest.raises(NotFound, match="no limit for s3://b"):
        repository.remove_limit("s3://b")
    assert repository.set_limit("s3://user:secret@b/in/", requests=1) == "s3://b/in"


def test_a_paused_run_packs_nothing_until_it_is_resumed(
    repository: Repository, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cafcat.operations.shared_limits.RENEW_SECONDS", 0.05)
    (tmp_path / "in").mkdir()
    for n in range(3000):
        (tmp_path / "in" / f"{n:05}.bin").write_bytes(b"x" * 2000)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION born_paused() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN NEW.paused_at = now(); RETURN NEW; END'"
        )
        connection.execute(
            "CREATE TRIGGER born_paused BEFORE INSERT ON ingest_runs FOR EACH ROW EXECUTE FUNCTION born_paused()"
        )
    reports = []
    thread = threading.Thread(target=lambda: reports.append(repository.ingest([tmp_path / "in"], jobs=1)))
    with cafcat.open(database_url=database_url, home=tmp_path / "home") as other:
        thread.start()
        wait_until(lambda: other.runs(1))
        [run] = other.runs(1)
        time.sleep(0.5)
        assert thread.is_alive()
        assert other.stats().files == 0
        other.resume_run(run.id)
        thread.join(60)
        assert reports[0].files_added == 3000
        assert other.runs(1)[0].state is RunState.FINISHED
        with pytest.raises(NotFound, match="no running ingest"):
            other.pause_run(run.id)


@pytest.mark.parametrize("reports", [True, False])
def test_one_process_of_a_run_reports_its_pause(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, reports: bool
) -> None:
    monkeypatch.setattr("cafcat.operations.shared_limits.RENEW_SECONDS", 0.05)
    heard = Heard()
    session = repository.with_progress(heard).session
    run = session.catalog.runs.begin_run(sources=[], options={}, version="0")
    with with_shared_limits(session, [], run, reports_pauses=reports):
        repository.pause_run(run)
        wait_until(lambda: session.pause.is_paused)
        repository.resume_run(run)
        wait_until(lambda: not session.pause.is_paused)
    assert heard.warnings == (["the run is paused", "the run goes on"] if reports else [])


def _busy(seconds: float) -> Callable[[Request], Fault | None]:
    ends_at = time.monotonic() + seconds
    return lambda request: Fault.ERROR_503 if request.key and time.monotonic() < ends_at else None


@pytest.mark.slow
def test_an_ingest_outlasts_a_server_that_asks_to_slow_down(
    database_url: str,
    tmp_path: Path,
    s3_proxy: S3Proxy,
    s3_server: S3Server,
    make_bucket: Callable[[], str],
    s3_proxy_environment: None,
) -> None:
    source = Bucket(s3_server, make_bucket())
    source.put({f"{n:03}": random.Random(n).randbytes(1000) for n in range(200)})
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "s")) as repository:
        repository.ingest([source.url], include=["none"])
        s3_proxy.clear()
        s3_proxy.faults = _busy(6)
        report = repository.ingest([source.url])
    assert (report.files_added, report.files_failed) == (200, 0)
    refused = [request for request in s3_proxy.requests if request.fault]
    assert 10 < len(refused) < 64 * 30, "each of 64 requests at most five times a second"


@pytest.mark.parametrize("slow", ["head", "body"])
def test_an_ingest_keeps_to_the_limit_of_a_web_server(
    repository: Repository,
    tmp_path: Path,
    web_server: WebServer,  # noqa: F811
    slow: str,
) -> None:
    in_flight, most, lock = [0], [0], threading.Lock()

    def serve(handler: Handler) -> None:
        with lock:
            in_flight[0] += 1
            most[0] = max(most[0], in_flight[0])
        if slow == "body" and handler.command == "GET":
            handler.head(200, web_server.files[handler.file_path], content_length="7")
            handler.wfile.flush()
            time.sleep(0.03)
            with lock:
                in_flight[0] -= 1
            handler.wfile.write(b"content")
            return
        time.sleep(0.01)
        handler.serve()
        with lock:
            in_flight[0] -= 1

    for number in range(40):
        web_server.write(f"f{number}", b"content")
        web_server.special[f"f{number}"] = serve
    listing = tmp_path / "list"
    listing.write_text("".join(f"{web_server.url(f'f{number}', user='u:secret@')}\n" for number in range(40)))
    TRAFFIC.set_shares({web_server.url(""): Share(requests=3)})
    try:
        assert repository.ingest([], files_from=str(listing)).files_added == 40
    finally:
        TRAFFIC.set_shares({})
    assert most[0] <= 3
    most[0] = 0
    repository.ingest([], files_from=str(listing), comparison="nothing")
    assert most[0] > 3


def test_an_ingest_keeps_to_the_limit_of_its_source(
    database_url: str,
    tmp_path: Path,
    s3_proxy: S3Proxy,
    s3_server: S3Server,
    make_bucket: Callable[[], str],
    s3_proxy_environment: None,
) -> None:
    source, target = Bucket(s3_server, make_bucket()), Bucket(s3_server, make_bucket())
    source.put({f"{n:03}": b"x" * 1000 for n in range(60)})
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=target.url) as repository:
        repository.set_limit(source.url, requests=3)
        s3_proxy.delay_seconds = 0.02
        report = repository.ingest([source.url])
        assert report.files_added == 60
        assert s3_proxy.most_in_flight <= 3 + 1  # the store has no limit
        assert repository.limits()[0].workers == 0  # the share was given back
        repository.remove_limit(source.url)
        s3_proxy.most_in_flight = 0
        repository.ingest([source.url], comparison="nothing")
        assert s3_proxy.most_in_flight > 3 + 1  # up to 64; how many depends on how busy this machine is

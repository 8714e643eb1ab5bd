"""The limits of the requests and bytes of one process."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cafcat.catalog.limits import fair_share
from cafcat.errors import InvalidInput
from cafcat.progress import Pause
from cafcat.support.quantities import parse_rate
from cafcat.support.traffic import Share, TokenBucket, Traffic, applies_to
from tests.worlds.traffic import in_flight
from tests.worlds.waiting import wait_until


class Watched:
    """Sends made-up requests through a Traffic, and records how many are in flight at most."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.most = self.most_bytes = self.done = 0
        self._now = self._bytes = 0
        self._lock = threading.Lock()

    def send(self, url: str, size_bytes: int = 0) -> None:
        with self.traffic.request(url, sent=size_bytes):
            with self._lock:
                self._now, self._bytes = self._now + 1, self._bytes + size_bytes
                self.most, self.most_bytes = max(self.most, self._now), max(self.most_bytes, self._bytes)
            time.sleep(0.002)
            with self._lock:
                self._now, self._bytes, self.done = self._now - 1, self._bytes - size_bytes, self.done + 1


def at_once(function: Callable[[int], object], count: int) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(function, range(count)))


def test_requests_at_the_same_time_are_limited_for_a_folder_only() -> None:
    traffic = Traffic()
    traffic.set_shares({"s3://b/in": Share(requests=3)})
    inside, beside = Watched(traffic), Watched(traffic)
    at_once(lambda n: inside.send(f"s3://b/in/{n}"), 60)
    at_once(lambda n: beside.send(f"s3://b/inside/{n}"), 60)
    assert (inside.most, inside.done) == (3, 60)
    assert beside.most > 3


def test_bytes_in_flight_are_limited_and_one_large_request_passes() -> None:
    traffic = Traffic()
    traffic.set_shares({"s3://b": Share(in_flight_bytes=1000)})
    watched = Watched(traffic)
    at_once(lambda _: watched.send("s3://b/x", 400), 40)
    assert watched.most_bytes == 800
    watched.send("s3://b/x", 5000)
    assert watched.done == 41


def test_all_limits_above_a_url_apply() -> None:
    traffic = Traffic()
    traffic.set_shares({"s3://b": Share(requests=5), "s3://b/in": Share(requests=2)})
    watched, inside = Watched(traffic), Watched(traffic)
    at_once(lambda n: (inside if n % 2 else watched).send("s3://b/in/x" if n % 2 else "s3://b/x"), 80)
    assert inside.most == 2
    assert watched.most <= 5


def test_no_request_begins_with_a_share_that_ended_until_it_is_renewed() -> None:
    traffic = Traffic()
    traffic.set_shares({"s3://b": Share(requests=9, ends_at=time.monotonic())})
    watched = Watched(traffic)
    thread = threading.Thread(target=watched.send, args=("s3://b/x",))
    thread.start()
    time.sleep(0.1)
    assert watched.done == 0
    traffic.set_shares({"s3://b": Share(requests=9, ends_at=time.monotonic() + 60)})
    thread.join(60)
    assert watched.done == 1


def test_a_smaller_share_reports_what_is_in_flight_and_stops_new_requests() -> None:
    traffic = Traffic()
    traffic.set_shares({"s3://b": Share(requests=2)})
    with traffic.request("s3://b/1", sent=10), in_flight(traffic, "s3://b/2", 5):
        assert traffic.set_shares({"s3://b": Share(requests=0)}) == {"s3://b": (2, 15)}
    watched = Watched(traffic)
    thread = threading.Thread(target=watched.send, args=("s3://b/x",))
    thread.start()
    time.sleep(0.05)
    assert watched.done == 0
    traffic.set_shares({})
    thread.join(60)
    assert watched.done == 1
    assert traffic.used == {"s3://b"}


def test_a_bucket_adds_up_waits_so_that_the_rate_stays_below_the_limit() -> None:
    bucket = TokenBucket(1000.0)
    waits = [bucket.add(500) for _ in range(10)]
    assert waits == sorted(waits)
    assert 4.0 < waits[-1] <= 5.0  # 5,000 bytes, minus a burst of a quarter of a second
    assert TokenBucket(None).add(1 << 40) == 0


def test_a_request_within_another_one_belongs_to_it() -> None:
    traffic = Traffic()
    traffic.set_shares({"s3://b": Share(requests=1)})
    watched = Watched(traffic)
    with ThreadPoolExecutor(1) as pool:
        with traffic.request("s3://b/a"), traffic.request("s3://b/b"):
            other = pool.submit(watched.send, "s3://b/c")
            time.sleep(0.02)
            assert watched.done == 0
        other.result(5)
    watched.send("s3://b/a")


def test_a_request_that_is_given_up_does_not_wait() -> None:
    traffic = Traffic()
    traffic.set_shares({"s3://b": Share(requests=0)})
    given_up = threading.Event()

    def send() -> None:
        with traffic.request("s3://b/a", is_given_up=given_up.is_set):
            pass

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(send)
        time.sleep(0.02)
        assert not waiting.done()
        given_up.set()
        waiting.result(5)


@pytest.mark.parametrize("move", [Traffic.received, Traffic.sent])
def test_a_stream_stops_when_its_share_ends(move: Callable[[Traffic, str, int], None]) -> None:
    traffic = Traffic()
    traffic.set_shares({"s3://b": Share(bytes_per_second=10_000_000, ends_at=time.monotonic() - 1)})
    with ThreadPoolExecutor(1) as pool:
        moved = pool.submit(move, traffic, "s3://b/a", 1000)
        move(traffic, "s3://c/a", 1000)
        time.sleep(0.02)
        assert not moved.done()
        traffic.set_shares({"s3://b": Share(bytes_per_second=10_000_000, ends_at=time.monotonic() + 60)})
        moved.result(5)


def test_shares_are_lowered_at_once_and_raised_later() -> None:
    traffic = Traffic()
    soon, late = time.monotonic() + 10, time.monotonic() + 60
    traffic.set_shares({"s3://b": Share(4, 1000, None, soon)})
    traffic.lower_shares({"s3://b": Share(8, 500, 7, late), "s3://c": Share(2, ends_at=late)})
    assert {url: limit.share for url, limit in traffic._limits.items()} == {
        "s3://b": Share(4, 500, 7, soon),
        "s3://c": Share(2, None, None, late),
    }


def test_the_lowest_bandwidth_of_several_threads_holds() -> None:
    traffic = Traffic()
    first, second = traffic.bandwidth(100), traffic.bandwidth(50)
    seen = []
    for step in (first.__enter__, second.__enter__, lambda: first.__exit__(None, None, None)):
        step()
        seen.append(traffic._received.bytes_per_second)
    second.__exit__(None, None, None)
    assert [*seen, traffic._received.bytes_per_second] == [100, 50, 50, None]


def test_a_process_stays_below_its_bandwidth_in_each_direction() -> None:
    traffic = Traffic()
    begin = time.monotonic()
    with traffic.bandwidth(1_000_000):
        for _ in range(8):
            with traffic.request("s3://b/x", sent=100_000, received=100_000):
                pass
    assert time.monotonic() - begin >= 0.8 - 0.25 - 0.02
    begin = time.monotonic()
    with traffic.request("s3://b/x", sent=1 << 40):
        pass
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("prefix", "url", "applies"),
    [
        ("s3://b", "s3://b", True),
        ("s3://b", "s3://b/x", True),
        ("s3://b", "s3://bb/x", False),
        ("s3://b/x", "s3://b", False),
        ("s3://b/x/", "s3://b/x/y", True),
    ],
)
def test_a_limit_applies_to_its_url_and_below(prefix: str, url: str, applies: bool) -> None:
    assert applies_to(prefix, url) is applies


@given(st.integers(1, 50), st.lists(st.integers(0, 20), max_size=6), st.data(), st.integers(0, 9))
def test_shares_never_exceed_the_limit(limit: int, others: list[int], data: st.DataObject, turn: int) -> None:
    rank = data.draw(st.integers(0, len(others)))
    share = fair_share(limit, others, rank, turn)
    assert share >= 0
    assert share + sum(others) <= max(limit, sum(others))


@given(st.integers(1, 50), st.integers(1, 12), st.integers(0, 30))
def test_renewed_shares_use_the_whole_limit(limit: int, workers: int, turn: int) -> None:
    shares = [0] * workers
    for _ in range(3):
        for n in range(workers):
            shares[n] = fair_share(limit, shares[:n] + shares[n + 1 :], n, turn)
    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1


def test_with_fewer_requests_than_processes_each_gets_its_turn() -> None:
    got = [[fair_share(2, [0] * 4, rank, turn) for rank in range(5)] for turn in range(5)]
    assert [sum(shares) for shares in got] == [2] * 5
    assert all(any(shares[rank] for shares in got) for rank in range(5))


def test_a_pause_ends_by_itself_or_with_the_operation() -> None:
    pause, events = Pause(), list[str]()
    pause.wait(lambda: True)
    pause.set(is_paused=True)
    pause.wait(lambda: True)
    thread = threading.Thread(target=lambda: (pause.wait(lambda: False), events.append("on")))
    thread.start()
    time.sleep(0.05)
    assert not events
    pause.set(is_paused=False)
    wait_until(lambda: events)


@pytest.mark.parametrize(("text", "rate"), [("100MB/s", 100_000_000), ("1MiB", 1 << 20), (5, 5)])
def test_a_rate_is_a_size_per_second(text: str | int, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["0", "fast", "1MB/h", True])
def test_other_rates_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="bytes per second"):
        parse_rate(text)

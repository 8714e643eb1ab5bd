"""Requests in flight: their number, the order of their answers, and their memory."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from cafcat.errors import CafcatError, StoreFailed
from cafcat.reading import fetch as fetching
from cafcat.reading.coalescing import RangeRead
from cafcat.reading.fetch import fetch, object_blocks
from cafcat.support.in_order import in_order
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

DATA = bytes(range(256)) * 4000
Read = RangeRead[RangeRead]  # type: ignore[type-arg]


class RemoteObject:
    """A store of one object that needs some time for an answer.

    now, most: requests in flight. begun: requested spans.
    """

    url = "s3://bucket"

    def __init__(self, requests: int, seconds: float = 0.0, together: int = 1) -> None:
        """Create a store. together: no request is answered before this number is in flight."""
        self.reads_in_flight = requests
        self._seconds = seconds
        self._barrier = threading.Barrier(together, timeout=PATIENCE_SECONDS)
        self._lock = threading.Lock()
        self.now = self.most = 0
        self.begun: list[tuple[int, int]] = []

    def read(self, _: str, start: int, end: int) -> bytes:
        with self._lock:
            self.begun.append((start, end))
            self.now += 1
            self.most = max(self.most, self.now)
        self._barrier.wait()
        time.sleep(self._seconds)
        with self._lock:
            self.now -= 1
        if start == 13_000:
            raise StoreFailed("no answer")
        return DATA[start:end]

    def stream(self, _: str, start: int, end: int) -> Iterator[bytes]:
        yield self.read(_, start, end)


def reads(count: int, size_bytes: int = 100, first: int = 0) -> Iterator[Read]:
    for number in range(first, first + count):
        yield RangeRead("s3://bucket", "key", start_byte=1000 * number, end_byte=1000 * number + size_bytes)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("cafcat-read")]


@pytest.mark.parametrize("requests", [2, 17, 64])
def test_as_many_requests_are_in_flight_as_the_store_allows(requests: int) -> None:
    store = RemoteObject(requests, together=requests)
    answers = [answer.data() for _, answer in fetch(store, reads(4 * requests, first=100))]
    assert answers == [DATA[1000 * n : 1000 * n + 100] for n in range(100, 100 + 4 * requests)]
    assert store.most == requests
    assert not threads()


def test_slow_answer_does_not_delay_the_next_requests() -> None:
    slow = threading.Event()

    class OneSlow(RemoteObject):
        def read(self, _: str, start: int, end: int) -> bytes:
            if start == 100_000:
                assert slow.wait(PATIENCE_SECONDS)
            return super().read(_, start, end)

    store = OneSlow(4)
    answers = fetch(store, reads(40, first=100))
    reader = threading.Thread(target=lambda: [answer.data() for _, answer in answers])
    reader.start()
    wait_until(lambda: len(store.begun) >= 15)
    assert (100_000, 100_100) not in store.begun
    slow.set()
    reader.join()
    assert len(store.begun) == 40


@pytest.mark.parametrize("size_bytes", [1000, 999, 300])
def test_answers_that_wait_take_no_more_memory_than_the_bound(size_bytes: int) -> None:
    store = RemoteObject(16, seconds=0.001)
    most = 5000
    with closing(fetch(store, reads(100, size_bytes, first=20), most_bytes=most)) as answers:
        for number, (_, answer) in enumerate(answers):
            assert sum(end - start for start, end in store.begun[number + 1 :]) <= most
            assert len(answer.data()) == size_bytes
    assert store.most <= most // size_bytes


def test_a_read_larger_than_the_bound_is_alone_in_flight() -> None:
    store = RemoteObject(16, seconds=0.001)
    large = [RangeRead("s3://bucket", "key", start_byte=n, end_byte=n + 9000) for n in range(5)]
    for number, (read, answer) in enumerate(fetch(store, iter(large), most_bytes=5000)):
        assert len(store.begun) <= number + 1
        assert answer.data() == DATA[read.start_byte : read.end_byte]
    assert store.most == 1


def test_the_default_bound_is_128_mib() -> None:
    assert fetching._MOST_BYTES == 128 << 20


def test_error_is_raised_by_the_answer_of_its_request() -> None:
    store = RemoteObject(4)
    found: list[bytes | CafcatError] = []
    for _, answer in fetch(store, reads(4, first=12)):
        try:
            found.append(answer.data())
        except CafcatError as error:
            found.append(error)
    assert isinstance(found[1], StoreFailed)
    assert [len(answer) for answer in found if isinstance(answer, bytes)] == [100, 100, 100]


def test_reads_without_bytes_and_in_blocks_send_no_request() -> None:
    store = RemoteObject(4)
    empty, large = RangeRead("s3://bucket", "key"), RangeRead("s3://bucket", "key", [], 0, 99, in_blocks=True)
    assert [answer.data() for _, answer in fetch(store, [empty, large])] == [b"", b""]
    assert store.begun == []


def test_a_store_with_one_request_in_flight_is_read_when_an_answer_is_called() -> None:
    store = RemoteObject(1)
    for number, (_, answer) in enumerate(fetch(store, reads(3, first=100))):
        assert len(store.begun) == number
        assert len(answer.data()) == 100
    assert not threads()


def test_closing_ends_the_threads_and_sends_no_further_request() -> None:
    store = RemoteObject(4, seconds=0.01)
    with closing(fetch(store, reads(1000, first=20))) as answers:
        next(answers)
    begun = len(store.begun)
    assert begun < 30
    assert not threads()


@pytest.mark.parametrize("requests", [1, 2, 3, 64])
def test_a_whole_object_comes_in_order_with_bounded_memory(requests: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PART_BYTES", 10_000)
    monkeypatch.setattr(fetching, "_MOST_PART_BYTES", 30_000)
    store = RemoteObject(requests, seconds=0.001)
    size = 255_555
    content = b""
    for block in object_blocks(store, "key", size):
        content += block
        if requests > 1:
            assert sum(end - start for start, end in store.begun) <= len(content) + 30_000
    assert content == DATA[:size]
    assert store.most <= min(requests, 3)


def test_calls_begin_at_most_a_bound_ahead_of_a_slow_caller() -> None:
    begun: list[int] = []

    def call(number: int) -> int:
        begun.append(number)
        return number

    results = in_order(call, range(1000), most_in_flight=3, most_begun=10)
    for number, result in enumerate(results):
        assert result == number
        assert len(begun) <= number + 11
    assert begun == sorted(begun) or len(begun) == 1000

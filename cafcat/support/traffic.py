"""Bounds the requests and bytes of this process, by URL: requests and bytes in flight, and bytes per second.

All connections of a process share one object, `TRAFFIC`, because a limit is for the sum of all of them.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition, Lock, local
from typing import Any, Final, NamedTuple

from cafcat.support.forking import renew_after_fork

__all__ = ["TRAFFIC", "Share", "TokenBucket", "Traffic", "applies_to"]

_BURST_SECONDS: Final = 0.25
"""How long a bucket may have been idle, in seconds, to make up for it."""
_LONGEST_WAIT: Final = 1.0
"""How long a request waits, in seconds, until it looks at the clock again: shares end at a time."""


class Share(NamedTuple):
    """The part of a limit that this process may use.

    Attributes:
        requests: Most requests at the same time; None for no limit.
        in_flight_bytes: Most bytes of requests at the same time; None for no limit. A single request may have more.
        bytes_per_second: Most bytes per second; None for no limit.
        ends_at: When the share ends, as `time.monotonic()` counts. Then no request begins. None: it does not end.
    """

    requests: int | None = None
    in_flight_bytes: int | None = None
    bytes_per_second: int | None = None
    ends_at: float | None = None


class TokenBucket:
    """Counts bytes, and tells how long to wait so that their rate stays below a limit. Threads may share it."""

    def __init__(self, bytes_per_second: float | None) -> None:
        self._lock = Lock()
        self._free_at = 0.0
        self.bytes_per_second = bytes_per_second

    def add(self, size_bytes: int) -> float:
        """Count bytes that are going to be moved. Return how long to wait before that, in seconds."""
        rate = self.bytes_per_second
        if rate is None or not size_bytes:
            return 0.0
        if rate <= 0:
            return _LONGEST_WAIT
        with self._lock:
            now = time.monotonic()
            begin = max(self._free_at, now - _BURST_SECONDS)
            self._free_at = begin + size_bytes / rate
            return max(0.0, self._free_at - now)


@dataclass(slots=True)
class _Limit:
    """The share of one limit, and how much of it is used.

    Attributes:
        share: The share.
        bucket: Counts the bytes.
        requests: Requests that are in flight.
        in_flight_bytes: Their bytes.
    """

    share: Share
    bucket: TokenBucket = field(default_factory=lambda: TokenBucket(None))
    requests: int = 0
    in_flight_bytes: int = 0

    @property
    def has_stopped(self) -> bool:
        """True if no byte may be moved now, because the share has ended or has a rate of 0."""
        ends_at = self.share.ends_at
        return self.share.bytes_per_second == 0 or (ends_at is not None and time.monotonic() >= ends_at)

    def has_room(self, size_bytes: int) -> bool:
        """Return True if another request may begin now."""
        share = self.share
        if self.has_stopped or share.in_flight_bytes == 0:
            return False
        if share.requests is not None and self.requests >= share.requests:
            return False
        return (
            share.in_flight_bytes is None
            or not self.in_flight_bytes
            or self.in_flight_bytes + size_bytes <= share.in_flight_bytes
        )


class Traffic:
    """The requests that are in flight, and their limits. Threads may share it."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._limits: dict[str, _Limit] = {}
        self._received = TokenBucket(None)
        self._sent = TokenBucket(None)
        self._used: set[str] = set()
        self._bandwidths: list[int] = []
        self._thread = local()
        renew_after_fork(self)

    @contextmanager
    def bandwidth(self, bytes_per_second: int | None) -> Iterator[None]:
        """Limit the bytes that this process receives per second, and those that it sends, inside the `with` block.

        If several threads are in such blocks, the lowest limit holds for all of them.

        Args:
            bytes_per_second: The limit; None to change nothing.
        """
        if bytes_per_second is None:
            yield
            return
        with self._changed:
            self._bandwidths.append(bytes_per_second)
            self._set_bandwidth()
        try:
            yield
        finally:
            with self._changed:
                self._bandwidths.remove(bytes_per_second)
                self._set_bandwidth()

    def _set_bandwidth(self) -> None:
        self._received.bytes_per_second = self._sent.bytes_per_second = min(self._bandwidths, default=None)

    def set_shares(self, shares: Mapping[str, Share]) -> Mapping[str, tuple[int, int]]:
        """Replace the shares of limits.

        A smaller share stops no request that is in flight.

        Args:
            shares: Share of each limit, by the URL of the limit.

        Returns:
            The requests in flight and their bytes, for each of these URLs.
        """
        with self._changed:
            for url, share in shares.items():
                limit = self._limits.setdefault(url, _Limit(share))
                limit.share = share
                limit.bucket.bytes_per_second = share.bytes_per_second
            for url in self._limits.keys() - shares.keys():
                self._limits[url].share, self._limits[url].bucket.bytes_per_second = Share(), None
            self._changed.notify_all()
            return {url: (self._limits[url].requests, self._limits[url].in_flight_bytes) for url in shares}

    def lower_shares(self, shares: Mapping[str, Share]) -> Mapping[str, tuple[int, int]]:
        """Replace the shares of limits as far as the new ones are smaller. `set_shares` may raise them later.

        Args:
            shares: The new share of each limit, by the URL of the limit.

        Returns:
            The requests in flight and their bytes, for each of these URLs.
        """
        with self._changed:
            before = {url: limit.share for url, limit in self._limits.items()}
            return self.set_shares({url: _smaller(before.get(url), share) for url, share in shares.items()})

    @property
    def used(self) -> frozenset[str]:
        """URLs of the buckets and servers to which this process has sent requests."""
        return frozenset(self._used)

    @contextmanager
    def request(
        self, url: str, *, received: int = 0, sent: int = 0, is_given_up: Callable[[], bool] = lambda: False
    ) -> Iterator[None]:
        """Wait until a request may begin, and count it as in flight inside the `with` block.

        Further requests that the thread sends in the block belong to this one, and do not wait: two such threads
        could wait for each other.

        Args:
            url: URL of the object or bucket.
            received: Expected bytes of the answer.
            sent: Bytes of the request.
            is_given_up: Returns True if the request will not be sent. The block then begins at once.
        """
        if getattr(self._thread, "is_in_request", False):
            yield
            return
        self._thread.is_in_request = True
        try:
            with self._counted(url, received, sent, is_given_up):
                yield
        finally:
            self._thread.is_in_request = False

    @contextmanager
    def _counted(self, url: str, received: int, sent: int, is_given_up: Callable[[], bool]) -> Iterator[None]:
        self._note(url)
        if not self._limits:  # the usual case
            _sleep(max(self._received.add(received), self._sent.add(sent)))
            yield
            return
        size_bytes = received + sent
        begun = self._begin(url, size_bytes, is_given_up)
        try:
            self._wait(begun, received, sent)
            yield
        finally:
            self._end(begun, size_bytes)

    def received(self, url: str, size_bytes: int) -> None:
        """Count bytes of an answer whose size was unknown, and wait if they came too fast, or if a share has ended.

        Args:
            url: URL of the object.
            size_bytes: Number of bytes.
        """
        self._wait(self._running(url), size_bytes, 0)

    def sent(self, url: str, size_bytes: int) -> None:
        """Count bytes that are going to be sent beyond those of `request`, and wait as `received` does.

        Args:
            url: URL of the object.
            size_bytes: Number of bytes.
        """
        self._wait(self._running(url), 0, size_bytes)

    def _running(self, url: str) -> "list[_Limit]":
        """Return the limits for a URL, as soon as none of their shares has ended or has a rate of 0."""
        with self._changed:
            while True:
                matching = [limit for prefix, limit in self._limits.items() if applies_to(prefix, url)]
                if not any(limit.has_stopped for limit in matching):
                    return matching
                self._changed.wait(_LONGEST_WAIT)

    def _wait(self, limits: "list[_Limit]", received: int, sent: int) -> None:
        waits = [self._received.add(received), self._sent.add(sent)]
        _sleep(max(waits + [limit.bucket.add(received + sent) for limit in limits]))

    def _note(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        self._used.add(f"{scheme}://{rest.partition('/')[0]}")

    def _begin(self, url: str, size_bytes: int, is_given_up: Callable[[], bool]) -> "list[_Limit]":
        with self._changed:
            while True:
                matching = [limit for prefix, limit in self._limits.items() if applies_to(prefix, url)]
                if all(limit.has_room(size_bytes) for limit in matching) or is_given_up():
                    break
                self._changed.wait(_LONGEST_WAIT)
            for limit in matching:
                limit.requests += 1
                limit.in_flight_bytes += size_bytes
        return matching

    def _end(self, begun: "list[_Limit]", size_bytes: int) -> None:
        with self._changed:
            for limit in begun:
                limit.requests -= 1
                limit.in_flight_bytes -= size_bytes
            self._changed.notify_all()

    def after_fork(self) -> None:
        """Forget the requests of the parent in a forked process. The shares belong to the parent, too."""
        bandwidth = self._received.bytes_per_second
        self._thread = local()
        self._changed = Condition()
        self._limits = {}
        self._used = set()
        self._received, self._sent = TokenBucket(bandwidth), TokenBucket(bandwidth)


def applies_to(prefix: str, url: str) -> bool:
    """Return True if a limit with the URL `prefix` is for `url`: the URL itself, or one below it."""
    return url.startswith(prefix) and (len(url) == len(prefix) or prefix.endswith("/") or url[len(prefix)] == "/")


def _smaller(before: Share | None, after: Share) -> Share:
    """Return a share with the smaller of both amounts, and the earlier end."""
    if before is None:
        return after
    return Share(*map(_least, before, after))


def _least(one: Any, other: Any) -> Any:
    """Return the smaller of two amounts, of which None is the largest."""
    return other if one is None else one if other is None else min(one, other)


def _sleep(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)


TRAFFIC: Final = Traffic()
"""The requests of this process."""

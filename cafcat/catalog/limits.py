"""Queries on the limits of requests and bytes, of which all processes together use no more than the limit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from cafcat.catalog.connection import Connection
from cafcat.catalog.history.runs import iso

__all__ = ["SHARE_SECONDS", "Amounts", "LimitRow", "Limits", "Renewed", "fair_share"]

SHARE_SECONDS: Final = 45
"""How long a share is valid, in seconds. The share of a process that does not renew it goes to the others then."""
_TURN_SECONDS: Final = 15
"""After so many seconds, other processes get the rest that cannot be divided."""

_LIST: Final = f"""
SELECT l.url, l.requests, l.in_flight_bytes, l.bytes_per_second, {iso("l.set_at")},
       (SELECT count(*) FROM limit_shares s WHERE s.url = l.url AND s.expires_at > now())
FROM limits l ORDER BY l.url
"""  # noqa: S608
_SET: Final = """
INSERT INTO limits (url, requests, in_flight_bytes, bytes_per_second) VALUES (%s, %s, %s, %s)
ON CONFLICT (url) DO UPDATE SET requests = excluded.requests, in_flight_bytes = excluded.in_flight_bytes,
  bytes_per_second = excluded.bytes_per_second, set_at = now()
"""
_FIND: Final = """
SELECT (SELECT paused_at IS NOT NULL FROM ingest_runs WHERE id = %(run)s),
       ARRAY(SELECT url FROM limits WHERE EXISTS (
         SELECT FROM unnest(%(urls)s::text[]) AS used
         WHERE used = url OR starts_with(used, rtrim(url, '/') || '/')
           OR starts_with(url, rtrim(used, '/') || '/')) ORDER BY url)
"""
_LOCK: Final = """
SELECT url, requests, in_flight_bytes, bytes_per_second, floor(extract(epoch FROM now()) / %s)::bigint
FROM limits WHERE url = ANY(%s) ORDER BY url FOR UPDATE
"""
_OTHERS: Final = """
SELECT url, worker, requests, in_flight_bytes, bytes_per_second FROM limit_shares
WHERE url = ANY(%s) AND expires_at > now() ORDER BY url, worker
"""
_FORGET: Final = "DELETE FROM limit_shares WHERE url = ANY(%s) AND (expires_at <= now() OR worker = %s)"
_GRANT: Final = """
INSERT INTO limit_shares (url, worker, requests, in_flight_bytes, bytes_per_second, expires_at)
VALUES (%s, %s, %s, %s, %s, now() + make_interval(secs => %s))
"""


class Amounts(NamedTuple):
    """Amounts of a limit, or of a share of one.

    Attributes:
        requests: Requests at the same time; None for no limit.
        in_flight_bytes: Bytes of requests at the same time; None for no limit.
        bytes_per_second: Bytes per second; None for no limit.
    """

    requests: int | None
    in_flight_bytes: int | None
    bytes_per_second: int | None


class LimitRow(NamedTuple):
    """A limit, as `cafcat limits list` shows it.

    Attributes:
        url: URL of a store or source, or of a folder of one. The limit is for all objects at or below it.
        requests: Most requests at the same time; None for no limit.
        in_flight_bytes: Most bytes of requests at the same time; None for no limit.
        bytes_per_second: Most bytes per second; None for no limit.
        set_at: When the limit was set: ISO 8601, UTC.
        workers: Number of processes that have a share now.
    """

    url: str
    requests: int | None
    in_flight_bytes: int | None
    bytes_per_second: int | None
    set_at: str
    workers: int


class Renewed(NamedTuple):
    """The shares of a process.

    Attributes:
        shares: Share of each limit, by its URL.
        is_paused: True if the run of the process is to be paused.
    """

    shares: Mapping[str, Amounts]
    is_paused: bool


def fair_share(limit: int, others: Sequence[int], rank: int, turn: int) -> int:
    """Return the share of one process: its part of the limit, or less while the others still use more than theirs.

    Args:
        limit: The limit of all processes together.
        others: Shares of the other processes.
        rank: Place of the process in a fixed order of all of them, from 0 on.
        turn: A number that changes from time to time. The rest that cannot be divided then goes to others.
    """
    workers = len(others) + 1
    part = limit // workers + ((rank + turn) % workers < limit % workers)
    return max(0, min(part, limit - sum(others)))


class Limits:
    """Queries on the rows of `limits` and `limit_shares`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def set(self, url: str, amounts: Amounts) -> None:
        """Set the limit for a URL. An earlier limit for it is replaced."""
        with self._connection.statement() as connection:
            connection.execute(_SET, (url, *amounts))

    def remove(self, url: str) -> bool:
        """Remove the limit for a URL. Return False if there is none."""
        with self._connection.statement() as connection:
            return connection.execute("DELETE FROM limits WHERE url = %s", (url,)).rowcount == 1

    def all(self) -> list[LimitRow]:
        """Return all limits in the order of their URLs."""
        with self._connection.statement() as connection:
            return [LimitRow(*row) for row in connection.execute(_LIST.encode()).fetchall()]

    def renew(
        self,
        worker: str,
        urls: Iterable[str],
        run_id: int | None,
        lower: Callable[[Mapping[str, Amounts]], Mapping[str, tuple[int, int]]],
    ) -> Renewed:
        """Renew the shares of a process for the limits of the URLs that it uses.

        Without such a limit, this is one round trip to the database. All shares together never exceed a limit: a
        share grows only by what others have given back.

        Args:
            worker: Name of the process, which no other process has.
            urls: URLs of stores and sources that the process uses.
            run_id: `ingest_runs.id` of its run; None if it has none.
            lower: Called with the new shares before they are recorded. It must let no request begin beyond them,
                and return the requests in flight and their bytes for each URL, which stay recorded as used.
        """
        with self._connection.statement() as connection:
            row = connection.execute(_FIND, {"run": run_id, "urls": list(urls)}).fetchone()
        paused, found = (row[0], row[1]) if row else (None, [])
        return Renewed(self._grant(worker, found, lower) if found else {}, bool(paused))

    def _grant(
        self,
        worker: str,
        urls: Sequence[str],
        lower: Callable[[Mapping[str, Amounts]], Mapping[str, tuple[int, int]]],
    ) -> Mapping[str, Amounts]:
        with self._connection.transaction() as connection:
            limits = connection.execute(_LOCK, (_TURN_SECONDS, list(urls))).fetchall()
            others = connection.execute(_OTHERS, (list(urls),)).fetchall()
            shares = {
                url: _share(Amounts(*amounts), [row[1:] for row in others if row[0] == url], worker, turn)
                for url, *amounts, turn in limits
            }
            used = lower(shares)
            connection.execute(_FORGET, (list(urls), worker))
            for url, share in shares.items():
                requests, in_flight = used.get(url, (0, 0))
                kept = (_most(share.requests, requests), _most(share.in_flight_bytes, in_flight))
                connection.execute(_GRANT, (url, worker, *kept, share.bytes_per_second, SHARE_SECONDS))
        return shares

    def give_back(self, worker: str) -> None:
        """Remove the shares of a process, which sends no requests any more."""
        with self._connection.statement() as connection:
            connection.execute("DELETE FROM limit_shares WHERE worker = %s", (worker,))


def _share(limit: Amounts, rows: Sequence[Sequence[object]], worker: str, turn: int) -> Amounts:
    others = [row for row in rows if row[0] != worker]
    rank = sum(1 for row in others if str(row[0]) < worker)

    def part(place: int) -> int | None:
        most = limit[place]
        if most is None:
            return None
        values = [value for row in others if isinstance(value := row[place + 1], int)]
        missing = len(others) - len(values)
        return fair_share(most, [*values, *[0] * missing], rank, turn)

    return Amounts(part(0), part(1), part(2))


def _most(share: int | None, used: int) -> int | None:
    return None if share is None else max(share, used)

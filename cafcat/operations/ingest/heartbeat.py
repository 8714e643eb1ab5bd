"""Renews the leases of the shards that a worker has, in a thread, and passes requests to the worker."""

import time
from collections.abc import Mapping
from threading import Event, Lock, Thread
from typing import Final

from cafcat.errors import CafcatError, CatalogUnavailable, Conflict
from cafcat.settings.database import Database
from cafcat.settings.settings import Settings

__all__ = ["LEASE_SECONDS", "Heartbeat"]

LEASE_SECONDS: Final = 60
"""How long a worker keeps a shard after the last renewal, in seconds. Then another worker takes the shard."""
RENEW_SECONDS: Final = 5.0
"""Time between two renewals, in seconds. Requests to stop or abort are seen as late as this."""


class Heartbeat:
    """Renews the leases of the shards of one worker every five seconds, with a connection of its own.

    The worker may commit a large chunk meanwhile, which keeps its own connection busy.
    """

    def __init__(self, settings: Settings, run_id: int, owner: str) -> None:
        """Start the thread.

        Args:
            settings: Settings of the catalog.
            run_id: ingest_runs.id.
            owner: Name of the worker.
        """
        self._catalog = Database(settings).catalog()
        self._run_id = run_id
        self._owner = owner
        self._lock = Lock()
        self._current = 0
        self._committed: dict[int, dict[str, int]] = {}
        self._progress: dict[int, dict[str, int]] = {}
        self._request: str | None = None
        self._error: CafcatError | None = None
        self._ended = Event()
        self._renewed_at = time.monotonic()
        self._thread = Thread(target=self._beat, name="cafcat-heartbeat", daemon=True)
        self._thread.start()

    @property
    def is_asked_to_end(self) -> bool:
        """True if the workers of the run are asked to stop or abort."""
        return self._request is not None

    def check(self) -> None:
        """Raise Conflict if the worker has lost a shard, or if the workers are asked to abort."""
        if self._error is not None:
            raise self._error
        if self._request == "abort":
            raise Conflict("the ingest was aborted")
        if self._progress and time.monotonic() > self._renewed_at + LEASE_SECONDS:
            raise CatalogUnavailable("the lease of a shard ended, because the database did not answer")

    def hold(self, shard_id: int, report: Mapping[str, int]) -> None:
        """Begin to renew the lease of a shard that the worker has just taken, and to count its files.

        Args:
            shard_id: shards.id.
            report: Counts of the files that earlier workers handled.
        """
        with self._lock:
            self._current = shard_id
            self._committed[shard_id] = {name: report.get(name, 0) for name in ("files", "bytes")}
            self._progress[shard_id] = {"files": 0, "bytes": 0}
            self._renewed_at = time.monotonic()

    def let_go(self, shard_id: int) -> None:
        """Stop renewing the lease of a shard."""
        with self._lock:
            self._progress.pop(shard_id, None)
            self._committed.pop(shard_id, None)

    def advance(self, files: int, size_bytes: int) -> None:
        """Count files and bytes of the shard that was taken last."""
        counts = self._progress.get(self._current)
        if counts is not None:
            counts["files"] += files
            counts["bytes"] += size_bytes

    def committed(self, shard_id: int) -> dict[str, int]:
        """Return the files and bytes of a shard that were handled so far, and count them as committed."""
        with self._lock:
            counts = self._committed[shard_id]
            for name, count in self._progress[shard_id].items():
                counts[name] += count
            self._progress[shard_id].update(files=0, bytes=0)
            return dict(counts)

    def end(self) -> list[int]:
        """Stop the thread, and return the shards that the worker still has. Their leases stay."""
        self._ended.set()
        self._thread.join()
        self._catalog.close()
        return list(self._progress)

    def _beat(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            try:
                self._renew()
            except CatalogUnavailable:
                continue
            except CafcatError as error:
                self._error = error
                return

    def _renew(self) -> None:
        with self._lock:
            progress = {shard_id: dict(counts) for shard_id, counts in self._progress.items()}
        begun = time.monotonic()
        kept, self._request = self._catalog.shards.renew(self._run_id, self._owner, LEASE_SECONDS, progress)
        self._renewed_at = begun
        with self._lock:
            lost = (progress.keys() - kept) & self._progress.keys()
        if lost:
            raise Conflict("another worker has taken a shard of this one, which did not renew its lease in time")

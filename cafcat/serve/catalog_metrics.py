"""The metrics of the catalog at /metrics: read at most every 15 seconds, on a connection of their own."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cafcat import __version__
from cafcat.errors import CafcatError
from cafcat.operations.catalog_metrics import catalog_metrics
from cafcat.settings.database import Database
from cafcat.settings.settings import Settings
from cafcat.support.exposition import Family, Sample, exposition, single

if TYPE_CHECKING:
    from cafcat.catalog.health.totals import CatalogTotals

__all__ = ["CatalogMetrics"]

_LEAST_AGE_SECONDS: Final = 15.0
_SHARE_OF_TIME: Final = 0.05
"""The queries may take this part of the time. So in a huge catalog, the numbers are older."""
_ANSWER_SECONDS: Final = 6.0
"""How long a scrape waits for the database. Prometheus itself waits for 10 seconds by default."""


class CatalogMetrics:
    """Reads the numbers of the catalog for the scrapes of one process of the server."""

    def __init__(self, settings: Settings) -> None:
        """Create the metrics. This connects to no database yet.

        Args:
            settings: Settings of the repository.
        """
        self._catalog = Database(settings).catalog()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cafcat-metrics")
        self._reading: asyncio.Future[None] | None = None
        self._totals: CatalogTotals | None = None
        self._seconds = 0.0
        self._read_again_at = self._stale_at = float("-inf")

    async def text(self) -> bytes:
        """Return the metrics as text. If the database does not answer, `cafcat_catalog_up` is 0, most are missing.

        While an earlier read goes on, no other one is begun, and the numbers before it are shown for a while.
        """
        if time.monotonic() >= self._read_again_at:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.get_running_loop().run_in_executor(self._thread, self._read)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._reading), _ANSWER_SECONDS)
        if time.monotonic() >= self._stale_at:
            self._totals = None
        return exposition(self._families()).encode()

    def _read(self) -> None:
        began = time.monotonic()
        try:
            self._totals = self._catalog.totals.read()
        except CafcatError:
            self._totals = None
            return
        now = time.monotonic()
        self._seconds = now - began
        interval = max(_LEAST_AGE_SECONDS, self._seconds / _SHARE_OF_TIME)
        self._read_again_at = now + interval
        self._stale_at = self._read_again_at + interval + _ANSWER_SECONDS

    def _families(self) -> list[Family]:
        info = Family("build_info", "gauge", "Version of cafcat.", (Sample(1, {"version": __version__}),))
        is_up = single("catalog_up", "gauge", "1 if the database answers, else 0.", int(self._totals is not None))
        if self._totals is None:
            return [info, is_up]
        seconds = single(
            "catalog_read_seconds", "gauge", "How long the server read the numbers of the catalog.", self._seconds
        )
        return [info, is_up, seconds, *catalog_metrics(self._totals)]

    def close(self) -> None:
        """Close the connection, when a read that goes on has ended. Idempotent."""
        self._thread.submit(self._catalog.close)
        self._thread.shutdown(wait=False)

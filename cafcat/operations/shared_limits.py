"""Keeps the shares of this process in the catalog's limits, and sees when its run is paused or resumed."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final

from cafcat.catalog.catalog import Catalog
from cafcat.catalog.chunks.owners import owner_name
from cafcat.catalog.limits import SHARE_SECONDS, Amounts
from cafcat.errors import CafcatError
from cafcat.progress import Pause
from cafcat.session import Session
from cafcat.support.forking import renew_after_fork
from cafcat.support.traffic import TRAFFIC, Share

__all__ = ["RENEW_SECONDS", "SharedLimits", "with_shared_limits"]

RENEW_SECONDS: Final = 5.0
"""Time between two renewals, in seconds. A change of a limit, and a pause, take effect within this time."""
_HURRY_SECONDS: Final = 1.0
"""Time until the next renewal, in seconds, while the share is not the whole part of this process."""


class SharedLimits:
    """The shares of this process. Call `renew` every few seconds, in any thread.

    Between two renewals, no request needs the database: `TRAFFIC` keeps to the shares. If the catalog does not
    answer for 45 seconds, the shares end, and no request begins until it answers: others may have the shares then.
    """

    def __init__(self, urls: Iterable[str], *, run_id: int | None = None, pause: Pause | None = None) -> None:
        """Create the object. Nothing is sent to the database.

        Args:
            urls: URLs of stores and sources that this process is going to use. Those that it has used are added.
            run_id: `ingest_runs.id` of the run of this process; None if it cannot be paused.
            pause: Is set while the run is paused.
        """
        self._urls = {url for url in urls if "://" in url}
        self._run_id = run_id
        self._pause = pause
        self._worker = owner_name("limits")
        self._has_shares = False
        self.is_waiting = False
        """True if this process has no request of some limit yet, because others still use theirs."""

    def renew(self, catalog: Catalog) -> None:
        """Renew the shares, apply changed limits, and begin or end the pause of the run.

        Args:
            catalog: The catalog. A thread needs one of its own if transactions of other threads send requests.

        Raises:
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        ends_at = monotonic() + SHARE_SECONDS

        def with_end(shares: Mapping[str, Amounts]) -> Mapping[str, Share]:
            return {url: Share(*amounts, ends_at) for url, amounts in shares.items()}

        def lower(shares: Mapping[str, Amounts]) -> Mapping[str, tuple[int, int]]:
            return TRAFFIC.lower_shares(with_end(shares))

        renewed = catalog.limits.renew(self._worker, self._urls | TRAFFIC.used, self._run_id, lower)
        if renewed.shares or self._has_shares:
            TRAFFIC.set_shares(with_end(renewed.shares))  # larger ones count only once they are recorded
        self._has_shares = bool(renewed.shares)
        self.is_waiting = any(0 in amounts for amounts in renewed.shares.values())
        if self._pause is not None:
            self._pause.set(is_paused=renewed.is_paused)

    def give_back(self, catalog: Catalog) -> None:
        """Give the shares back. Call this when the process sends no requests any more."""
        if self._has_shares:
            TRAFFIC.set_shares({})
            catalog.limits.give_back(self._worker)
            self._has_shares = False


class _OpenBlocks:
    """Counts the blocks of `with_shared_limits` in this process. The threads of a worker share its shares."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0
        renew_after_fork(self)

    @contextmanager
    def block(self, after_last: Callable[[], None]) -> Iterator[None]:
        """Count a block. After the last one, call a function; meanwhile, no other block can begin."""
        with self._lock:
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
                if not self._count:
                    after_last()

    def after_fork(self) -> None:
        """Forget the blocks of the parent in a forked process."""
        self._lock, self._count = Lock(), 0


_OPEN: Final = _OpenBlocks()


@contextmanager
def with_shared_limits(
    session: Session, urls: Iterable[str], run_id: int | None = None, *, reports_pauses: bool = True
) -> Iterator[None]:
    """Keep to the limits of the catalog, and to the setting `bandwidth`, inside the `with` block.

    A thread renews the shares with a connection of its own.

    Args:
        session: The session. While its run is paused, `Session.should_end` waits.
        urls: URLs of the stores and sources that the block uses.
        run_id: `ingest_runs.id` of the run; None if it cannot be paused.
        reports_pauses: True to warn when the run is paused and goes on. False in a worker process, because its
            coordinator warns.
    """
    shared = SharedLimits(urls, run_id=run_id, pause=session.pause)

    def give_back() -> None:
        with suppress(CafcatError):
            shared.give_back(session.catalog)

    with _OPEN.block(give_back):
        shared.renew(session.catalog)
        ended = Event()
        arguments = (session, shared, ended, reports_pauses)
        thread = Thread(target=_keep, args=arguments, name="cafcat-limits", daemon=True)
        thread.start()
        try:
            with TRAFFIC.bandwidth(session.settings.bandwidth):
                yield
        finally:
            ended.set()
            thread.join()
            session.pause.set(is_paused=False)


def _keep(session: Session, shared: SharedLimits, ended: Event, reports_pauses: bool) -> None:
    """Renew the shares until the event is set. A catalog that does not answer is asked again."""
    from cafcat.settings.database import Database

    with closing(Database(session.settings).catalog()) as catalog:
        was_paused = False
        while not ended.wait(_HURRY_SECONDS if shared.is_waiting else RENEW_SECONDS):
            try:
                shared.renew(catalog)
            except CafcatError as error:
                logging.getLogger("cafcat").debug("the shares of limits could not be renewed: %s", error)
                continue
            if session.pause.is_paused != was_paused:
                was_paused = session.pause.is_paused
                if reports_pauses:
                    session.warn("the run is paused" if was_paused else "the run goes on")

"""Runs calls on the workers of an executor, for operations that work object by object or chunk by chunk.

The coordinator is the process that runs the operation. It cuts the work into parts, submits one call for each part,
and adds up the results. Each call opens a session of its own on its worker. The results that must last are in the
catalog and in the stores, as after an operation without workers: when the coordinator dies, the same command
continues with what is left.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cafcat.errors import CafcatError, Unavailable
from cafcat.events import Event
from cafcat.operations.ingest.cluster_checks import check_cluster
from cafcat.progress import Progress
from cafcat.session import Session
from cafcat.settings.sharing import SharedSettings
from cafcat.support.executors import FINAL_ERRORS, is_local, shown_error, worker_count
from cafcat.support.traffic import TRAFFIC

__all__ = ["ClusterCalls", "run_call"]

_CALLS_PER_WORKER: Final = 2
"""Largest number of unfinished calls for each worker. The second one replaces a call that ends early."""
_MOST_RETRIES: Final = 3
"""How often a call is submitted again after its worker was lost or failed."""
_WAIT_SECONDS: Final = 0.5
"""Longest time between two looks at the user's wish to stop, in seconds."""
_MOST_TOGETHER: Final = 16
"""Largest number of items of one part. A call opens a connection, which costs some time."""
_HINT: Final = "run the same command again: it continues where it stopped"

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[_Result]):
    """The result of a call, the number of files and bytes that it handled, and its events."""

    result: _Result
    files: int
    size_bytes: int
    events: Sequence[Event]


class _Attempt(NamedTuple):
    """A submitted call: its function, its part of the work, and how often it was submitted again."""

    function: Callable[[Session, Any], Any]
    part: Any
    retries: int = 0


class ClusterCalls:
    """The calls of one operation on the workers of an executor.

    Attributes:
        worker_count: Number of calls that the executor runs at the same time.
        interrupted: True if parts were left out because the user ended the operation.
    """

    def __init__(
        self, session: Session, executor: Executor, *, share_password: bool = False, can_stop: bool = True
    ) -> None:
        """Prepare calls. Nothing is submitted yet.

        Args:
            session: Receives progress and events, and can stop the operation.
            executor: Runs the calls.
            share_password: True to send the URL of the database to the workers even if it has a password.
            can_stop: False if the operation is worth nothing without all its parts. The user can then only abort.
        """
        self._can_stop = can_stop
        self._session = session
        self._executor = executor
        self._share_password = share_password or is_local(executor)
        self._settings = SharedSettings.of(session.settings, with_password=self._share_password)
        self._attempts: dict[Future[_Outcome[Any]], _Attempt] = {}
        self.worker_count = worker_count(executor)
        self.interrupted = False

    def check(self, stores: Iterable[str], folder: Path | None = None) -> None:
        """Refuse the executor if its workers do not reach the catalog, one of the stores, or a folder.

        Args:
            stores: URLs of the stores that the calls read or write. This process must reach them.
            folder: An existing folder into which the calls write; None for none.

        Raises:
            InvalidInput: The workers are on other hosts, and the database is the embedded one.
            Unavailable: A worker has another version of cafcat, or does not reach the catalog or a store.
        """
        check_cluster(
            self._session, self._executor, sorted(stores), share_password=self._share_password, folder=folder
        )

    def run(
        self, function: Callable[[Session, _Part], _Result], parts: Iterable[_Part]
    ) -> Generator[tuple[_Part, _Result], None, None]:
        """Call a function for each part on the workers, and yield each part with its result as the calls end.

        A call whose worker was lost or failed is submitted again, up to three times. If the user ends the
        operation, no further part is begun, and the unfinished calls are waited for.

        Args:
            function: A function at the top level of a module. It gets a session and a part, and reports its
                progress and events to the session.
            parts: The parts. They can be pickled. They are taken only when workers are free for them.

        Raises:
            Unavailable: A call failed too often, or the executor takes no calls.
            CafcatError: A call failed with this error, either too often, or because every other call would, too.
        """
        left = iter(parts)
        try:
            self._submit_next(function, left)
            while self._attempts:
                for future in self._ended():
                    attempt = self._attempts.pop(future)
                    outcome = self._outcome(future, attempt)
                    if outcome is not None:
                        yield attempt.part, outcome.result
                self._submit_next(function, left)
        finally:
            for future in self._attempts:
                future.cancel()
            self._attempts.clear()

    def grouped(self, items: Iterable[_Part], key: Callable[[_Part], float]) -> Iterator[list[_Part]]:
        """Yield items in groups, so that a call for each group is worth its connection.

        The first groups have one item, so that few items reach all workers. Later ones have up to 16.

        Args:
            items: The items.
            key: Returns the weight of an item. A group is full at weight 1.
        """
        group: list[_Part] = []
        weight, count = 0.0, 0
        for item in items:
            group.append(item)
            weight += key(item)
            if weight >= 1 or len(group) > min(
                count // (_CALLS_PER_WORKER * self.worker_count), _MOST_TOGETHER - 1
            ):
                yield group
                group, weight, count = [], 0.0, count + 1
        if group:
            yield group

    def _submit_next(self, function: Callable[[Session, _Part], _Result], left: Iterator[_Part]) -> None:
        while len(self._attempts) < _CALLS_PER_WORKER * self.worker_count:
            if self._can_stop and self._session.should_end():
                self.interrupted = self.interrupted or any(True for _ in left)
                return
            for part in left:
                self._submit(_Attempt(function, part))
                break
            else:
                return

    def _submit(self, attempt: _Attempt) -> None:
        try:
            future = self._executor.submit(run_call, attempt.function, self._settings, attempt.part)
        except Exception as error:
            raise Unavailable(f"the executor takes no calls: {shown_error(error)}", hint=_HINT) from error
        self._attempts[future] = attempt

    def _ended(self) -> set["Future[_Outcome[Any]]"]:
        """Wait until at least one call has ended. Raises what `Session.checkpoint` raises."""
        while True:
            done, _ = wait(self._attempts, _WAIT_SECONDS, FIRST_COMPLETED)
            self._session.checkpoint()
            if done:
                return done

    def _outcome(self, future: "Future[_Outcome[Any]]", attempt: _Attempt) -> "_Outcome[Any] | None":
        """Pass progress and events of a call on, and return its outcome; None if it was submitted again."""
        try:
            outcome = future.result()
        except Exception as error:  # noqa: BLE001 - engines raise errors of their own, and cancel lost calls
            self._submit_again(attempt, error)
            return None
        self._session.progress.advance(outcome.files, outcome.size_bytes)
        for event in outcome.events:
            self._session.emit(event)
        return outcome

    def _submit_again(self, attempt: _Attempt, error: Exception) -> None:
        if isinstance(error, FINAL_ERRORS):
            raise error
        if attempt.retries == _MOST_RETRIES:
            if isinstance(error, CafcatError):
                raise error
            message = f"a call failed on {_MOST_RETRIES + 1} workers: {shown_error(error)}"
            raise Unavailable(message, hint=_HINT) from error
        self._session.warn(f"a worker failed, and its work is given to another one: {shown_error(error)}")
        self._submit(attempt._replace(retries=attempt.retries + 1))


def run_call(function: Callable[[Session, _Part], _Result], settings: SharedSettings, part: _Part) -> Any:
    """Call a function with a new session and a part of the work. This is the call that executors run.

    Args:
        function: The function.
        settings: Settings of the repository.
        part: The part of the work.

    Returns:
        The outcome: the result of the function, and what it reported.
    """
    progress = _CollectedProgress()
    opened = closing(Session.open(settings.load(), progress, progress))
    with opened as session, TRAFFIC.bandwidth(session.settings.bandwidth):
        result = function(session, part)
    return _Outcome(result, progress.files, progress.size_bytes, progress.events)


class _CollectedProgress(Progress):
    """Collects the progress and events of a call, which the coordinator shows when the call has ended."""

    def __init__(self) -> None:
        self.files = self.size_bytes = 0
        self.events: list[Event] = []

    def advance(self, files: int, size_bytes: int) -> None:
        """Count files and bytes."""
        self.files += files
        self.size_bytes += size_bytes

    def emit(self, event: Event) -> None:
        """Collect an event."""
        self.events.append(event)

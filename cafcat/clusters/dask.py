"""Runs calls on the workers of a Dask cluster. It needs the extra `cafcat[dask]`."""

import asyncio
import functools
import logging
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from cafcat.clusters.relaying import RelayingExecutor
from cafcat.errors import NotInstalled, Unavailable

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["DaskExecutor", "open_dask"]

_CONNECT_SECONDS: Final = 8
"""How long the scheduler may take to accept a connection, in seconds."""
_WORKER_SECONDS: Final = 5
"""How long to wait for the first worker of a scheduler that has none, in seconds."""
_CLOSE_SECONDS: Final = 5
"""How long the end of the connection may take, in seconds."""
_RETRIES: Final = 2
"""How often Dask repeats a call that raised an exception."""


@contextmanager
def open_dask(host: str, port: int) -> "Iterator[DaskExecutor]":
    """Connect to the scheduler of a Dask cluster, and yield an executor.

    Raises:
        NotInstalled: The package distributed is missing.
        Unavailable: The scheduler does not answer, or has no workers.
    """
    address = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
    client = _connect(host, port, address)
    try:
        executor = DaskExecutor(client)
        try:
            _wait_for_a_worker(client, address)
            yield executor
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
    finally:
        client.close(timeout=_CLOSE_SECONDS)


def _connect(host: str, port: int, address: str) -> "Client":
    try:
        from distributed import Client
    except ImportError as error:
        message = "a Dask cluster needs the package distributed, which is not installed"
        raise NotInstalled(message, hint=NotInstalled.remedy("dask")) from error
    for name in ("distributed", "distributed.client"):
        # Dask logs tracebacks of lost connections. The futures have these errors, too.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        # Dask itself tries again and again until the time is over.
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
        return Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except Exception as error:  # another kind of server may even cause a MemoryError
        hint = "start one with `dask scheduler`, or correct the address"
        raise Unavailable(f"no Dask scheduler answers at {address}", hint=hint) from error


def _wait_for_a_worker(client: "Client", address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_WORKER_SECONDS)
    except (OSError, TimeoutError) as error:
        hint = f"start workers with `dask worker {address}`"
        raise Unavailable(f"the Dask scheduler at {address} has no workers", hint=hint) from error


class DaskExecutor(RelayingExecutor):
    """An executor that runs calls on the workers of a Dask cluster.

    It differs from `Client.get_executor` in the errors of its futures: a lost worker or scheduler is Unavailable.
    It can also examine the workers.
    """

    def __init__(self, client: "Client", *, retries: int = _RETRIES) -> None:
        """Create an executor.

        Args:
            client: A connected client. It stays open when the executor is shut down.
            retries: How often Dask repeats a call that raised an exception. After the loss of a worker, Dask
                repeats its calls on other workers, whatever this number is; the setting
                `distributed.scheduler.allowed-failures` of the scheduler is the limit.
        """
        super().__init__(_translated)
        self._client = client
        # Two calls with the same arguments are two calls.
        self._calls = client.get_executor(retries=retries, pure=False)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run a call on one of the workers, and return its future.

        Raises:
            Unavailable: The connection to the scheduler is closed.
        """
        self._check_open()
        # The methods of Dask have keyword arguments of their own.
        call = functools.partial(fn, *args, **kwargs) if kwargs else fn
        try:
            future = self._calls.submit(call, *([] if kwargs else args))
        except (OSError, RuntimeError) as error:
            raise _lost_scheduler() from error
        return self._relay(future, future.cancel)

    def run_on_each_worker(self, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
        """Call a function once in each worker process, also if the workers are busy.

        Returns:
            The results by the address of the worker. If the call failed, the exception is the result.

        Raises:
            Unavailable: The connection to the scheduler is closed.
        """
        try:
            return dict(self._client.run(_in_thread, function, *args, on_error="return"))
        except (OSError, RuntimeError) as error:
            raise _lost_scheduler() from error

    def worker_count(self) -> int:
        """Return the number of threads of all workers."""
        return sum(self._client.nthreads().values())


async def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a thread, so that the event loop of the worker goes on."""
    return await asyncio.to_thread(function, *args)


def _translated(error: BaseException) -> BaseException:
    from distributed.scheduler import KilledWorker

    if isinstance(error, CancelledError):
        return _lost_scheduler()
    if isinstance(error, KilledWorker):
        return Unavailable(f"the worker processes of Dask that ran this call died: {error.last_worker.address}")
    return error


def _lost_scheduler() -> Unavailable:
    return Unavailable("the connection to the Dask scheduler was lost", hint="run the same command again")

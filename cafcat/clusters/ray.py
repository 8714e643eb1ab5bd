"""Runs calls on the nodes of a Ray cluster. It needs the extra `cafcat[ray]`.

`RayExecutor` can be used without the rest of cafcat: after `ray.init()`, it is an ordinary executor.
"""

import logging
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from cafcat.clusters.relaying import RelayingExecutor
from cafcat.errors import CafcatError, NotInstalled, Unavailable

__all__ = ["RayExecutor", "open_ray"]

_CONNECT_SECONDS: Final = 8
"""How long the head node may take to accept a connection, in seconds."""
_EACH_SECONDS: Final = 60
"""How long a call on each node may take, in seconds."""
_RETRIES: Final = 3
"""How often Ray repeats a call whose worker process or node was lost."""


@contextmanager
def open_ray(host: str, port: int) -> "Iterator[RayExecutor]":
    """Connect to a Ray cluster as a client, and yield an executor.

    Raises:
        NotInstalled: The package ray is missing.
        Unavailable: The head node does not answer, or has another version of Ray or Python; or no node has a
            processor.
    """
    ray = _library()
    _connect(ray, host, port)
    try:
        executor = RayExecutor()
        try:
            if not executor.worker_count():
                hint = "start a node with `ray start --address HOST:6379`"
                raise Unavailable(f"the Ray cluster at {host}:{port} has no processors", hint=hint)
            yield executor
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
    finally:
        ray.shutdown()


def _library() -> ModuleType:
    try:
        return import_module("ray")
    except ImportError as error:
        message = "a Ray cluster needs the package ray, which is not installed"
        raise NotInstalled(message, hint=NotInstalled.remedy("ray")) from error


def _connect(ray: ModuleType, host: str, port: int) -> None:
    """Connect to the server for clients on the head node."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    hint = "start the head node with `ray start --head`, or correct the address"
    try:
        # Ray itself tries for half a minute.
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
        ray.init(f"ray://{place}", log_to_driver=False, logging_level=logging.CRITICAL)
    except CafcatError:
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise Unavailable(f"no usable Ray cluster is at {place}: {reason}", hint=hint) from error


class RayExecutor(RelayingExecutor):
    """An executor that runs calls as remote tasks of Ray. `ray.init` must have been called.

    Example:
        >>> ray.init("ray://head:10001")  # doctest: +SKIP
        >>> with RayExecutor() as executor:  # doctest: +SKIP
        ...     print(list(executor.map(abs, [-1, -2])))

    A call that raises an exception ends its future with that exception. The loss of a worker process, a node or the
    connection is Unavailable, after Ray has repeated the call `max_retries` times.
    """

    def __init__(self, *, max_retries: int = _RETRIES, processors: float = 1) -> None:
        """Create an executor.

        Args:
            max_retries: How often Ray repeats a call whose worker process or node was lost.
            processors: Number of processors that Ray reserves for a call.

        Raises:
            NotInstalled: The package ray is missing.
        """
        super().__init__(_translated)
        self._ray = _library()
        self._remote = self._ray.remote(_call)
        self._task = self._remote.options(num_cpus=processors, max_retries=max_retries)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run a call on one of the nodes, and return its future.

        Raises:
            Unavailable: The connection to the cluster is closed.
        """
        self._check_open()
        return self._submit(self._task, fn, args, kwargs)

    def _submit(self, task: Any, fn: Callable[..., Any], args: Any, kwargs: Any) -> "Future[Any]":
        if not self._ray.is_initialized():
            # Ray would start a cluster on this host.
            raise _lost_cluster()
        try:
            reference = task.remote(fn, args, kwargs)
            future = reference.future()
        except (ConnectionError, self._ray.exceptions.RaySystemError) as error:
            raise _lost_cluster() from error
        return self._relay(future, lambda: self._ray.cancel(reference))

    def run_on_each_worker(self, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
        """Call a function once on each node that has processors, also if the nodes are busy.

        Returns:
            The results by the address of the node. If the call failed, the exception is the result. If several
            nodes have one address, the others have the id of the node in addition.

        Raises:
            Unavailable: The connection to the cluster is closed.
        """
        futures: dict[str, Future[Any]] = {}
        for node in self._nodes():
            name = node["NodeManagerAddress"]
            name = name if name not in futures else f"{name} {node['NodeID']}"
            futures[name] = self._submit(self._task_on(node["NodeID"]), function, args, {})
        return {name: _outcome(future) for name, future in futures.items()}

    def _task_on(self, node_id: str) -> Any:
        """Return the remote task for one node. The task needs no processor, so that it does not wait for others."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
        return self._remote.options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)

    def _nodes(self) -> list[dict[str, Any]]:
        """Return the living nodes that have processors."""
        if not self._ray.is_initialized():
            raise _lost_cluster()
        try:
            return [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        except ConnectionError as error:
            raise _lost_cluster() from error

    def worker_count(self) -> int:
        """Return the number of processors of all nodes."""
        return int(sum(node["Resources"]["CPU"] for node in self._nodes()))


def _call(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function on a node."""
    return function(*args, **kwargs)


def _outcome(future: "Future[Any]") -> Any:
    """Return the result of a call, or its exception."""
    try:
        return future.result(timeout=_EACH_SECONDS)
    except FutureTimeoutError:
        future.cancel()
        return Unavailable(f"the node did not answer within {_EACH_SECONDS} seconds")
    except Exception as error:  # noqa: BLE001 - it is the result
        return error


def _translated(error: BaseException) -> BaseException:
    """Return the exception that a call raised, or Unavailable for errors of the cluster."""
    from ray.exceptions import RayError, RayTaskError

    if isinstance(error, RayTaskError):
        cause = getattr(error, "cause", None)
        return cause if isinstance(cause, BaseException) else error
    if isinstance(error, RayError):
        return Unavailable(f"Ray lost the call: {type(error).__name__}")
    if isinstance(error, ConnectionError):
        return _lost_cluster()
    return error


def _lost_cluster() -> Unavailable:
    return Unavailable("the connection to the Ray cluster was lost", hint="run the same command again")

"""One process of the server: an event loop, with one uvicorn server for each door."""

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import uvicorn

from cafcat.packed_files import PackedFiles
from cafcat.serve.connections import Connections
from cafcat.serve.doors import Door
from cafcat.serve.observing import AccessLog, LoggedMessages, LoggedWarnings, Metrics, Observed, Observer
from cafcat.serve.options import ServeOptions
from cafcat.serve.protocol import LimitedProtocol, protocol_class
from cafcat.serve.serving import Serving
from cafcat.serve.straight import Straight
from cafcat.settings.settings import Settings
from cafcat.support.allocator import share_arenas
from cafcat.support.collecting import collect_as_server

__all__ = ["door_server", "run_worker"]

_OTHER_FILES: Final = 256
"""Open files that a process needs besides its connections: chunks, the database, logs."""


def run_worker(
    settings: Settings, options: ServeOptions, listening: Sequence[tuple[Door, socket.socket]], alive: int
) -> None:
    """Serve files until SIGTERM, or until the parent process has died.

    Args:
        settings: Settings of the repository.
        options: How files are served.
        listening: The doors of the server, each with its socket.
        alive: The reading end of a pipe, whose writing end only the parent has.
    """
    collect_as_server()
    share_arenas()
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # the access log has all that matters
    runner = asyncio.Runner(loop_factory=uvicorn.Config("", loop="auto", log_config=None).get_loop_factory())
    with runner:
        runner.run(_serve(settings, options, listening, alive))


async def _serve(
    settings: Settings, options: ServeOptions, listening: Sequence[tuple[Door, socket.socket]], alive: int
) -> None:
    log, metrics = AccessLog(options.access_log), Metrics()
    logging.getLogger("cafcat").addHandler(LoggedMessages(log))
    warnings = LoggedWarnings(log)
    repository = PackedFiles(settings, warnings.warn)
    serving = Serving(repository, options, warnings)
    connections = Connections(options, _most_connections(options.connections))
    servers = [door_server(door, serving, connections, (log, metrics)) for door, _ in listening]
    _stop_on_signals(servers, connections, alive)
    watch = asyncio.ensure_future(connections.watch(metrics))
    try:
        await asyncio.gather(
            *(server.serve([listener]) for server, (_, listener) in zip(servers, listening, strict=True))
        )
    finally:
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        serving.close()
        repository.close()
        log.close()


def door_server(
    door: Door, serving: Serving, connections: Connections, observed_by: tuple[AccessLog, Metrics]
) -> uvicorn.Server:
    """Return the server of one door, in the event loop of this process. It does not listen yet.

    Args:
        door: The door.
        serving: What all requests of the process share.
        connections: The connections of the process.
        observed_by: Log and metrics of the process.
    """
    log, metrics = observed_by
    observer = Observer(door.name, log, metrics)
    app, plain = door.make(serving, metrics)
    protocol = protocol_class(connections, Straight(plain, serving.finder, observer))
    return _Server(_config(Observed(app, observer), serving.options, protocol))


class _Server(uvicorn.Server):
    """A server that leaves the signals to the process, because a process may have several servers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signal."""
        yield


def _config(app: Observed, options: ServeOptions, protocol: type[LimitedProtocol]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        interface="asgi3",
        timeout_graceful_shutdown=options.stop_seconds,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )


def _stop_on_signals(servers: Sequence[uvicorn.Server], connections: Connections, alive: int) -> None:
    """Let responses end at SIGTERM, or at the death of the parent; drop them at the second signal."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if any(server.should_exit for server in servers):
            connections.abort()
        for server in servers:
            server.should_exit = True

    def orphaned() -> None:
        loop.remove_reader(alive)
        stop()

    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_reader(alive, orphaned)


def _most_connections(wanted: int) -> int:
    """Return how many connections a process can have, after its limit of open files has been raised."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(1, limit - _OTHER_FILES)

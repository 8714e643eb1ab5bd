"""A headless Chromium for the console, driven by Playwright, and the console's server in a thread."""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

import cafcat
from cafcat.progress import Warnings
from cafcat.serve.connections import Connections
from cafcat.serve.doors import doors
from cafcat.serve.observing import AccessLog, Metrics
from cafcat.serve.options import ServeOptions
from cafcat.serve.serving import Serving
from cafcat.serve.worker import door_server
from tests.worlds.servers.s3_gateway import program
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

__all__ = ["chromium", "served"]


@contextlib.contextmanager
def served(repository: cafcat.Repository, **options: Any) -> Iterator[str]:
    """Serve the HTTP side of a repository until the `with` block ends, and yield the URL of its pages."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        servers: list[uvicorn.Server] = []
        serving = _serve(repository, ServeOptions(stop_seconds=2, **options), listener, servers)
        thread = threading.Thread(target=asyncio.run, args=(serving,), daemon=True)
        thread.start()
        try:
            wait_until(lambda: bool(servers) and servers[0].started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/-/"
        finally:
            servers[0].should_exit = True
            thread.join(PATIENCE_SECONDS)


async def _serve(
    repository: cafcat.Repository, options: ServeOptions, listener: socket.socket, servers: list[uvicorn.Server]
) -> None:
    serving = Serving(repository, options, Warnings())
    log, metrics = AccessLog(Path(os.devnull)), Metrics()
    [door] = doors(options)
    servers.append(door_server(door, serving, Connections(options, 100), (log, metrics)))
    try:
        await servers[0].serve([listener])
    finally:
        serving.close()
        log.close()


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Start Chromium, and yield the browser of Playwright. Skips the test without either of them."""
    api = pytest.importorskip("playwright.sync_api")
    path = program("chromium")
    if path is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--no-proxy-server"])
        try:
            yield browser
        finally:
            browser.close()

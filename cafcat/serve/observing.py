"""The access log, as JSON lines, and the metrics for Prometheus."""

import json
import logging
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cafcat.errors import shown_path
from cafcat.progress import Progress
from cafcat.serve.asgi import App, Exchange, Message, Receive, Scope, Send, exchange_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["AccessLog", "LoggedMessages", "LoggedWarnings", "Metrics", "Observed", "Observer"]

_text = json.encoder.encode_basestring
_MOST_LINES: Final = 100_000
"""Most lines that wait to be written. Further ones are dropped, and counted in the log."""
_PAUSE_SECONDS: Final = 0.05
"""How long lines are collected, so that one system call writes many of them."""
_BLOCK_LINES: Final = 200
"""Most lines of one system call."""
_FILES: Final = "PROMETHEUS_MULTIPROC_DIR"
_BUCKETS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)


class AccessLog:
    """Writes JSON lines in a thread of its own, so that a slow disk or pipe does not stop the server.

    Several processes may append to one file: a line is never torn, because each block is one system call.
    """

    def __init__(self, path: Path | None) -> None:
        """Open the log.

        Args:
            path: The file, which is created if it is missing; None for stderr.

        Raises:
            OSError: The file cannot be opened.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = 2 if path is None else os.open(path, flags, 0o640)
        self._lines: deque[str] = deque()
        self._has_lines, self._is_open = threading.Event(), True
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="cafcat-log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Append one line: a JSON document. This never waits."""
        if len(self._lines) >= _MOST_LINES:
            self._dropped += 1
            return
        self._lines.append(line)
        if not self._has_lines.is_set():
            self._has_lines.set()

    def _run(self) -> None:
        while self._is_open:
            self._has_lines.wait()
            if self._is_open:
                time.sleep(_PAUSE_SECONDS)
            self._has_lines.clear()
            self._append_lines()

    def _append_lines(self) -> None:
        """Write the lines that wait, in blocks of whole lines."""
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if self._dropped:
            lines.append(json.dumps({"event": "dropped", "lines": self._dropped}))
            self._dropped = 0
        for start in range(0, len(lines), _BLOCK_LINES):
            block = "\n".join(lines[start : start + _BLOCK_LINES]) + "\n"
            try:
                os.write(self._file, block.encode("utf-8", "backslashreplace"))
            except OSError:
                self._dropped += 1  # the disk is full, or the pipe is closed: serving files goes on

    def close(self) -> None:
        """Write all lines that wait, and end the thread."""
        self._is_open = False
        self._has_lines.set()
        self._thread.join()


class LoggedWarnings(Progress):
    """Writes warnings, such as that copies are read, to the access log."""

    def __init__(self, log: AccessLog) -> None:
        """Create an object that writes to a log."""
        self._log = log

    def warn(self, message: str) -> None:
        """Write one warning."""
        self._log.write(json.dumps({"time": _shown(time.time()) + "Z", "event": "warning", "message": message}))


class LoggedMessages(logging.Handler):
    """Writes the messages of Python's logger "cafcat" to the access log."""

    def __init__(self, log: AccessLog) -> None:
        """Create a handler that writes to a log."""
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message, with its traceback."""
        event = record.levelname.lower()
        message = self.format(record)
        self._log.write(json.dumps({"time": _shown(record.created) + "Z", "event": event, "message": message}))


class Metrics:
    """Counts requests, bytes, times and failures of all processes of one server.

    If the environment variable PROMETHEUS_MULTIPROC_DIR names a folder, the numbers are in files there, and
    `document` adds up those of all processes.
    """

    def __init__(self) -> None:
        """Create the metrics, all of them 0."""
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values

        if _FILES in os.environ:
            process_id = os.getpid()  # by default, each number is counted after a system call for the process
            values.ValueClass = values.MultiProcessValue(lambda: process_id)  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        own = {"registry": self.registry, "namespace": "cafcat"}
        self._requests = Counter("http_requests", "Answered requests.", ["door", "method", "status"], **own)  # type: ignore[arg-type]
        self._bytes = Counter("http_response_bytes", "Bytes of bodies that were sent.", ["door"], **own)  # type: ignore[arg-type]
        self._seconds = Histogram(
            "http_request_seconds",
            "Time from the head of a request to the end of its response.",
            ["door"],
            buckets=_BUCKETS,
            **own,  # type: ignore[arg-type]
        )
        self._failures = Counter(
            "http_failures",
            "Responses with a status from 500 on, or that broke off, by the kind of the error.",
            ["kind"],
            **own,  # type: ignore[arg-type]
        )
        self._connections = Gauge(
            "http_connections",
            "Open connections, and those of them with a request.",
            ["state"],
            multiprocess_mode="livesum",
            **own,  # type: ignore[arg-type]
        )
        self._by_labels: dict[tuple[str, str, int], Any] = {}
        self._by_door: dict[str, tuple[Any, Any]] = {}

    def set_connections(self, open_count: int, busy_count: int) -> None:
        """Record how many connections are open, and how many of them have a request."""
        self._connections.labels("open").set(open_count)
        self._connections.labels("busy").set(busy_count)

    def end(self, door: str, method: str, exchange: Exchange, seconds: float) -> None:
        """Count a request that has ended.

        Args:
            door: Name of the side of the server, such as "http".
            method: Method of HTTP.
            exchange: What became of the request.
            seconds: How long it took.
        """
        key = (door, method if method in _METHODS else "other", exchange.status)
        counter = self._by_labels.get(key)
        if counter is None:
            counter = self._by_labels[key] = self._requests.labels(*map(str, key))
            self._by_door[door] = self._bytes.labels(door), self._seconds.labels(door)
        counter.inc()
        of_bytes, of_seconds = self._by_door[door]
        of_bytes.inc(exchange.size_bytes)
        of_seconds.observe(seconds)
        if exchange.error_kind is not None:
            self._failures.labels(exchange.error_kind).inc()

    def document(self) -> tuple[bytes, bytes]:
        """Return the media type and the text for Prometheus: the sums of all processes."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return CONTENT_TYPE_LATEST.encode(), generate_latest(self._all_processes())

    def _all_processes(self) -> "CollectorRegistry":
        if _FILES not in os.environ:
            return self.registry
        from prometheus_client import CollectorRegistry
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return registry


_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"))


class Observer:
    """Logs and counts the requests of one door."""

    def __init__(self, door: str, log: AccessLog, metrics: Metrics) -> None:
        """Create an observer.

        Args:
            door: Name of the side of the server, for log and metrics.
            log: Gets a line for each request.
            metrics: Count the requests.
        """
        self._door = door
        self._log = log
        self._metrics = metrics
        self._second = (0, "")

    def end(self, method: str, path: str, client: Any, exchange: Exchange, seconds: float) -> None:
        """Write the line of a request that has ended, and count it.

        Args:
            method: Method of HTTP.
            path: Path of the URL, decoded.
            client: Address and port of the client; None if unknown.
            exchange: What became of the request.
            seconds: How long it took.
        """
        self._metrics.end(self._door, method, exchange, seconds)
        sent = 0 if method == "HEAD" else exchange.size_bytes
        # Assembled by hand: json.dumps of a dict takes three times as long.
        line = (
            f'{{"time":"{self._now()}","door":"{self._door}","client":{_text(client[0] if client else "")},'
            f'"method":{_text(method)},"path":{_text(shown_path(path))},"status":{exchange.status},'
            f'"size_bytes":{sent},"seconds":{seconds:.6f}'
        )
        if not exchange.is_complete:
            line += ',"incomplete":true'
        if exchange.error is not None:
            error = {"kind": exchange.error_kind, "message": exchange.error}
            line += f',"error":{json.dumps(error, ensure_ascii=False)}'
        self._log.write(line + "}")

    def _now(self) -> str:
        """Return the time as `_shown` does. The part up to the second is made once a second."""
        now = time.time()
        second = int(now)
        if second != self._second[0]:
            self._second = (second, _shown(second))
        return f"{self._second[1]}.{int((now - second) * 1000):03d}Z"


class Observed:
    """An ASGI application whose requests are logged and counted."""

    def __init__(self, app: App, observer: Observer) -> None:
        """Wrap an application.

        Args:
            app: The application.
            observer: Logs and counts its requests.
        """
        self._app = app
        self._observer = observer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and write its line."""
        exchange = exchange_of(scope)
        began = time.monotonic()

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                await send(message)
                return
            await send(message)
            exchange.size_bytes += len(message.get("body", b""))
            exchange.is_complete = not message.get("more_body", False)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:  # noqa: BLE001 - a bug must cost one response, and be in the log
            from cafcat.serve.failures import record, respond_bug

            record(scope, error)
            if not exchange.status:
                await respond_bug(watched)
        finally:
            path, client = scope["path"], scope.get("client")
            self._observer.end(scope["method"], path, client, exchange, time.monotonic() - began)


def _shown(seconds: float) -> str:
    """Return a time in UTC, up to the second: "2026-11-24T10:00:00"."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))

"""The processes of the server: the parent opens the ports, forks the others, and replaces those that die."""

import errno
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Final

from cafcat.errors import CafcatError, Conflict, InvalidInput, OutputFailed, Unavailable
from cafcat.serve.doors import Door, doors
from cafcat.serve.options import ServeOptions
from cafcat.settings.settings import Settings

__all__ = ["Server"]

_BACKLOG: Final = 2048
_QUICK_SECONDS: Final = 5.0
"""A process that lives for less time than this, in seconds, has not begun to serve: the server ends."""
_KILL_SECONDS: Final = 5.0
"""How long a process may take to end after the time for its responses is over."""
_METRICS: Final = "PROMETHEUS_MULTIPROC_DIR"


class Server:
    """Opens ports, and serves files on them in several processes until a signal.

    Each process has a listening socket of its own for each port (SO_REUSEPORT), so that the kernel spreads the
    connections. The parent keeps all sockets open: connections that wait for a process that died are served by the
    process that replaces it.

    Attributes:
        urls: URL of each door, by its name.
    """

    def __init__(self, settings: Settings, options: ServeOptions) -> None:
        """Check the options, and open the ports.

        Args:
            settings: Settings of the repository.
            options: How files are served.

        Raises:
            InvalidInput: An option is out of its range, or the certificate or key cannot be used.
            Conflict: Another program listens on a port.
            Unavailable: The host is not an address of this machine, or the port needs other rights.
            OutputFailed: The access log cannot be written.
        """
        options.check()
        _check_certificate(options)
        _check_log(options)
        self._settings = settings
        self._options = options
        self._doors: list[Door] = []
        self._sockets: list[list[socket.socket]] = []
        self.urls: dict[str, str] = {}
        for door in doors(options):
            self._open(door)
        self._children: dict[int, tuple[int, float]] = {}
        self._stopping = False

    def _open(self, door: Door) -> None:
        try:
            sockets = _listen(self._options.host, door.port, self._options.workers)
        except Conflict as error:
            error.hint = f"choose another {'--s3-port' if door.name == 's3' else '--port'}"
            raise
        host, port = sockets[0].getsockname()[:2]
        scheme = "https" if self._options.certificate else "http"
        self.urls[door.name] = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"
        self._doors.append(door)
        self._sockets.append(sockets)

    def run(self, function: Callable[[], object]) -> None:
        """Serve files until SIGTERM, SIGINT or SIGHUP. Responses that have begun go on for `stop_seconds`.

        Args:
            function: Called when the server answers requests, and signals stop it as described.

        Raises:
            CafcatError: A process ended as soon as it had begun. The log has the reason.
        """
        metrics = tempfile.mkdtemp(prefix="cafcat-metrics-")
        os.environ[_METRICS] = metrics  # read by the processes when they import the client of Prometheus
        self._alive, self._alive_in_parent = os.pipe()
        before = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        try:
            for number in range(self._options.workers):
                self._fork(number)
            function()
            self._wait()
        finally:
            self._end_children()
            for number, handler in before.items():
                signal.signal(number, handler)
            os.environ.pop(_METRICS, None)
            shutil.rmtree(metrics, ignore_errors=True)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        """Stop all processes, and refuse new connections: the kernel accepts them while a socket is open."""
        self._stopping = True
        for sockets in self._sockets:
            for one in sockets:
                one.close()
        for pid in list(self._children):
            os.kill(pid, signal.SIGTERM)

    def _fork(self, number: int) -> None:
        """Start the process with this number. Signals wait until both processes know about each other."""
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            if self._stopping:
                return
            pid = os.fork()
            if not pid:
                _run_and_exit(lambda: self._be_child(number, blocked))
            self._children[pid] = (number, time.monotonic())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _be_child(self, number: int, blocked: set[int | signal.Signals]) -> None:
        """Serve files in a forked process, with its own sockets only.

        A terminal sends SIGINT and SIGHUP to all processes. Only the parent acts on them, and sends SIGTERM.
        """
        for signal_number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(signal_number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.close(self._alive_in_parent)
        for sockets in self._sockets:
            for n, one in enumerate(sockets):
                if n != number:
                    one.close()
        from cafcat.serve.worker import run_worker

        listening = [(door, sockets[number]) for door, sockets in zip(self._doors, self._sockets, strict=True)]
        run_worker(self._settings, self._options, listening, self._alive)

    def _wait(self) -> None:
        """Replace processes that die, until the server stops.

        Raises:
            CafcatError: A process ended as soon as it had begun.
        """
        while self._children:
            pid, status = os.wait()
            if pid not in self._children:
                continue
            number, begun = self._children.pop(pid)
            self._forget_metrics(pid)
            if self._stopping:
                continue
            code = os.waitstatus_to_exitcode(status)
            if time.monotonic() - begun < _QUICK_SECONDS:
                raise CafcatError(f"a process of the server ended at its start, with code {code}")
            print(f"cafcat: process {pid} ended with code {code}; another one begins", file=sys.stderr)  # noqa: T201
            self._fork(number)

    def _forget_metrics(self, pid: int) -> None:
        from prometheus_client import multiprocess

        multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]

    def _end_children(self) -> None:
        """End all processes that are left."""
        self._stop(0, None)
        until = time.monotonic() + self._options.stop_seconds + _KILL_SECONDS
        while self._children:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid:
                self._children.pop(pid, None)
            elif time.monotonic() > until:
                for child in self._children:
                    os.kill(child, signal.SIGKILL)
                until = float("inf")
            else:
                time.sleep(0.02)
        os.close(self._alive)
        os.close(self._alive_in_parent)


_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _run_and_exit(function: Callable[[], None]) -> None:
    """Call a function in a forked process, and end the process without the cleanup of its parent."""
    code = 1
    try:
        function()
        code = 0
    except BaseException:  # noqa: BLE001 - the parent's stack must not be unwound here
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _listen(host: str, port: int, count: int) -> list[socket.socket]:
    """Return listening sockets for one address, as many as there are processes.

    Raises:
        Conflict: Another program listens there.
        Unavailable: The address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        _bound(family, address, shared=False).close()  # SO_REUSEPORT would join another server of this user
        sockets: list[socket.socket] = []
        for _ in range(count):
            sockets.append(_bound(family, address, shared=True))
            address = sockets[0].getsockname()
            sockets[-1].listen(_BACKLOG)
    except OSError as error:
        where = f"{host} port {port}"
        if isinstance(error, socket.gaierror) or error.errno is None:
            raise InvalidInput(f"no address for the host {host!r}: {error.strerror}") from error
        if error.errno == errno.EADDRINUSE:
            raise Conflict(f"another program listens on {where}") from error
        raise Unavailable(f"cannot listen on {where}: {error.strerror}") from error
    return sockets


def _bound(family: int, address: tuple[object, ...], *, shared: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        if not shared:
            listener.listen(1)
    except BaseException:
        listener.close()
        raise
    return listener


def _check_certificate(options: ServeOptions) -> None:
    if options.certificate is None:
        return
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.certificate, options.key)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or str(error)
        raise InvalidInput(
            f"cannot use the certificate or its key: {reason}", path=str(options.certificate)
        ) from error


def _check_log(options: ServeOptions) -> None:
    if options.access_log is None:
        return
    try:
        os.close(os.open(options.access_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640))
    except OSError as error:
        raise OutputFailed(
            f"cannot write the access log: {error.strerror}", path=str(options.access_log)
        ) from error

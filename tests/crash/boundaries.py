"""Count the calls by which a program makes something durable or visible, and kill it before or after one of them.

Files: write (the label distinguishes direct writes), pwrite, fsync (of files and of folders), syncfs, link, unlink,
rename, replace, mkdir, rmdir, open for writing. S3: every operation of boto3, every read of obstore. Postgres:
every round trip, thus every statement, block of a COPY, and COMMIT. Pipes between processes of cafcat: every
message, when it is sent and when it is received.
"""

import fcntl
import functools
import os
import signal
import stat
import threading
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Boundaries"]

_FILES = ("pwrite", "link", "unlink", "remove", "rename", "replace", "mkdir", "rmdir")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_O_DIRECT: int = getattr(os, "O_DIRECT", 0)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Boundaries:
    """Counts calls, reports them, and kills the process at one of them.

    `report` is called with ("passed", label) before and after each call. The label begins with "before" or "after".
    `report` is called with ("killed", label) just before the kill.
    """

    def __init__(
        self,
        kill_at: int | None,
        kill_before: Sequence[str],
        report: Callable[[str, str], object],
        kill: Callable[[], object] = _die,
    ) -> None:
        """Choose the call at which the process is killed. Without kill_at and kill_before it is never killed.

        Args:
            kill_at: number of the step, counted from 1. Each call has two steps: before and after it.
            kill_before: beginnings of labels. The process is killed before the call that completes this sequence.
            report: called with a kind and a label.
            kill: kills the process.
        """
        self._passed = 0
        self._kill_at = kill_at
        self._awaited = list(kill_before)
        self._report = report
        self._kill = kill
        self._lock = threading.Lock()

    def arm(self, *, s3: bool = True) -> None:
        """Count the calls from now on. s3: count the calls of S3, too."""
        from multiprocessing.connection import Connection

        import psycopg

        from cafcat.reading import durable_files

        for name in _FILES:
            setattr(os, name, self._counted(getattr(os, name), lambda *_, _name=name: f"file {_name}"))
        vars(os)["write"] = self._counted(os.write, _write_label)
        vars(os)["fsync"] = self._counted(os.fsync, _fsync_label)
        vars(os)["open"] = self._counted(os.open, _open_label)
        vars(durable_files)["sync_file_system"] = self._counted(
            durable_files.sync_file_system, lambda *_: "file sync of a file system"
        )
        connection: Any = psycopg.Connection
        connection.wait = self._counted(connection.wait, _sql_label)
        pipe: Any = Connection
        pipe.send = self._counted(pipe.send, _message_label)
        pipe.recv = self._counted(pipe.recv, lambda *_: "pipe receive")
        if s3:
            self._arm_s3()

    def _arm_s3(self) -> None:
        import botocore.client
        import obstore

        client: Any = botocore.client.BaseClient
        client._make_api_call = self._counted(client._make_api_call, lambda _, name, *__: f"s3 {name}")
        vars(obstore)["get"] = self._counted(obstore.get, lambda *_: "s3 get by obstore")

    def _counted(self, function: Callable[..., Any], label_of: Callable[..., str | None]) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(*arguments: Any, **named: Any) -> Any:
            label = label_of(*arguments)
            if label is None:
                return function(*arguments, **named)
            self._step("before", label)
            try:
                return function(*arguments, **named)
            finally:  # a call that raises an error ends, too
                self._step("after", label)

        return counted

    def _step(self, when: str, label: str) -> None:
        with self._lock:
            self._passed += 1
            self._report("passed", f"{when} {label}")
            if self._passed == self._kill_at or (when == "before" and self._is_last_awaited(label)):
                self._report("killed", f"{when} {label}")
                self._kill()

    def _is_last_awaited(self, label: str) -> bool:
        if not self._awaited or not label.startswith(self._awaited[0]):
            return False
        self._awaited.pop(0)
        return not self._awaited


def _write_label(descriptor: int, *_: object) -> str:
    is_direct = fcntl.fcntl(descriptor, fcntl.F_GETFL) & _O_DIRECT
    return "file write direct" if is_direct else "file write"


def _message_label(_pipe: object, message: object) -> str:
    return f"pipe {message[0] if isinstance(message, tuple) else type(message).__name__}"


def _fsync_label(descriptor: int) -> str:
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    return "file fsync of a folder" if is_folder else "file fsync"


def _open_label(_path: object, flags: int = 0, *_: object) -> str | None:
    return "file open for writing" if flags & _WRITING else None


def _sql_label(_connection: object, steps: Any, *_: object) -> str:
    """Return the label of a round trip, from psycopg's generator for the round trip and its arguments."""
    if getattr(steps, "__name__", "") == "watched":  # LiveCheck wraps the generator
        steps = steps.gi_frame.f_locals["steps"]
    name = getattr(steps, "__name__", "")
    frame = getattr(steps, "gi_frame", None)
    values = {} if frame is None else frame.f_locals
    if name == "_exit_gen":
        outer = getattr(values.get("self"), "_outer_transaction", True)
        end = "COMMIT" if values.get("exc_type") is None else "ROLLBACK"
        return f"sql {end if outer else 'savepoint'}"
    query = values.get("query", values.get("statement"))
    if query is None:
        return f"sql {'BEGIN' if name == '_enter_gen' else 'COPY' if 'copy' in name else name}"
    text = query.decode() if isinstance(query, bytes) else str(query)
    return "sql " + " ".join(text.split()[:3])

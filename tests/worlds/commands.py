"""Run commands of cafcat, and programs that use it, in processes of their own, quickly.

A start of Python with the modules of cafcat costs 0.2 to 1 second of CPU time. A server (fork_server.py) forks a
child that has the modules already, which costs 0.02 seconds. The process, its arguments, environment, folder and
standard files are real. With CAFCAT_TEST_REAL_COMMANDS=1 every command is a new interpreter.
"""

import functools
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.worlds.fork_server import LENGTH_BYTES

__all__ = ["Command", "command_line"]

PROJECT = Path(__file__).parents[2]
PYTHON = (sys.executable, "-W", "error")
INTERPRETER_VARIABLES = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""How variables begin that an interpreter, or the system's loader, reads when it starts."""


def command_line(*arguments: str | Path) -> list[str]:
    """Return the command line that runs cafcat in a new interpreter."""
    return [*PYTHON, "-m", "cafcat", *map(str, arguments)]


class Command(subprocess.Popen[Any]):
    """A process of cafcat, used like any other `subprocess.Popen`.

    The three private methods are those by which Popen starts a process, and waits for it.
    """

    def __init__(
        self,
        arguments: Sequence[str | Path],
        *,
        cwd: Path,
        env: Mapping[str, str],
        program: str | None = None,
        text: bool = False,
    ) -> None:
        """Start the process, with pipes for its standard files.

        Args:
            arguments: for cafcat, or for the program.
            cwd: the current folder of the process.
            env: all its environment variables.
            program: Python code that runs in place of the command, as by `python -c`.
            text: its standard files carry text, not bytes.
        """
        self._is_forked = os.environ.get("CAFCAT_TEST_REAL_COMMANDS") != "1" and can_fork(env)
        words = [str(argument) for argument in arguments]
        self._order = {"program": program, "arguments": words}
        command = command_line(*words) if program is None else [*PYTHON, "-c", program, *words]
        pipe = subprocess.PIPE
        super().__init__(command, cwd=cwd, env=dict(env), stdin=pipe, stdout=pipe, stderr=pipe, text=text)

    def _execute_child(self, *given: Any) -> None:
        if not self._is_forked:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        _, _, _, _, _, folder, environment, _, _, _, *pipes = given
        reading, _, _, writing, _, error_writing = pipes[:6]
        self._child_created = True
        self.pid, self._answer = server().start(
            self._order | {"environment": environment, "folder": str(folder)},
            [reading, writing, error_writing],
        )
        for descriptor in (reading, writing, error_writing):
            os.close(descriptor)
        self._devnull = None

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if not self._is_forked:
            return super()._try_wait(flags)  # type: ignore[misc,no-any-return]
        if flags & os.WNOHANG and not select.select([self._answer], [], [], 0)[0]:
            return 0, 0
        with self._answer:
            return self.pid, int(self._answer.readline())

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if not self._is_forked:
            return super()._internal_poll(*given, **named)  # type: ignore[misc,no-any-return]
        with self._waitpid_lock:
            if self.returncode is None:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
        return self.returncode


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return whether an interpreter that starts in this environment would be like the server's."""
    return settings_of_interpreter(environment) == settings_of_interpreter(os.environ)


def settings_of_interpreter(environment: Mapping[str, str]) -> dict[str, object]:
    """Return the variables that an interpreter reads, without the folder of this project in PYTHONPATH."""
    found: dict[str, object] = {
        name: value for name, value in environment.items() if name.startswith(INTERPRETER_VARIABLES)
    }
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    found["PYTHONPATH"] = [folder for folder in folders if folder not in ("", str(PROJECT))]
    return found


@functools.cache
def server() -> "ForkServer":
    """Return the server of this process. The server ends with this process."""
    return ForkServer()


class ForkServer:
    """The server, as its client uses it. Any number of threads may start commands at once."""

    def __init__(self) -> None:
        """Start the server."""
        self._lock = threading.Lock()
        self._control, other = socket.socketpair()
        pipe = subprocess.PIPE
        with other:
            # The server's standard files are pipes, like those of the commands.
            self._process = subprocess.Popen(
                [*PYTHON, "-m", "tests.worlds.fork_server", str(other.fileno())],
                cwd=PROJECT,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                pass_fds=[other.fileno()],
            )

    def start(self, order: dict[str, Any], standard_files: list[int]) -> tuple[int, IO[bytes]]:
        """Fork a child for an order.

        Args:
            order: program, arguments, environment and folder.
            standard_files: descriptors of stdin, stdout and stderr.

        Returns:
            The process id of the child, and a file with one more line, its wait status, when it has ended.
        """
        reading, writing = os.pipe()
        with self._lock:
            umask = os.umask(0)
            os.umask(umask)
            text = json.dumps(order | {"umask": umask}).encode()
            socket.send_fds(self._control, [len(text).to_bytes(LENGTH_BYTES)], [*standard_files, writing])
            self._control.sendall(text)
        os.close(writing)
        answer = open(reading, "rb", buffering=0)  # noqa: SIM115 - its reader closes it
        line = answer.readline()
        assert line, "the fork server has ended"
        return int(line), answer

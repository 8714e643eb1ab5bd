"""Lets a command continue in the background once its work has begun."""

import os
from typing import Self

__all__ = ["Background"]


class Background:
    """A process in the background, and the process that waits until it is ready.

    Attributes:
        exit_code: In the process that was started by the user: the exit code to end with. None in the background.
    """

    def __init__(self, exit_code: int | None, pipe: int) -> None:
        self.exit_code = exit_code
        self._pipe = pipe

    @classmethod
    def fork(cls) -> Self:
        """Fork a process for the background, in a session of its own. Call this before threads are started.

        In the process that was started by the user, this returns when the other process has called `ready`, or has
        ended without it: then `exit_code` is that of the other process.
        """
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reading)
            os.setsid()
            return cls(None, writing)
        os.close(writing)
        with open(reading, "rb", buffering=0) as pipe:
            is_ready = bool(pipe.read(1))
        return cls(0 if is_ready else os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), -1)

    def ready(self) -> None:
        """Let the process that waits end. From now on, output of this process is discarded."""
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.close(null)
        os.write(self._pipe, b"\n")
        os.close(self._pipe)

"""An ingest by several processes, of which one is killed, or all: what its leader and its workers are told.

A team is for many files; here it is made to start with one, and gets its work in small pieces.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.crash.boundaries import Boundaries

__all__ = ["Victim", "boundaries_of", "join", "lead", "reporter"]

PROJECT = Path(__file__).parents[2]
_PIECE_FILES = 3


class Victim(NamedTuple):
    """Who is killed: the leader (0) or one of its workers (from 1 on, in the order in which they start), alone or
    together with all others."""

    number: int
    everybody: bool = False


def reporter(report: int, number: int) -> Callable[[str, str], object]:
    """Writes lines of JSON into a pipe that others write to, too: each is short enough to come as a whole."""
    write = os.write
    return lambda kind, text: write(report, f"{json.dumps([number, kind, text])}\n".encode())


def boundaries_of(order: dict[str, Any], report: int, number: int = 0) -> Boundaries:
    """Of a process in a team, or of one that is alone."""
    victim, everybody = order.get("victim") or (0, False)
    kill_at, kill_before = (order["kill_at"], order["kill_before"]) if number == victim else (None, ())
    more = {"kill": lambda: os.killpg(0, signal.SIGKILL)} if everybody else {}
    return Boundaries(kill_at, kill_before, reporter(report, number), **more)


def lead(order: dict[str, Any], report: int) -> None:
    """In the process that is to lead: workers are in its process group, which can be killed as a whole, and keep
    the pipe `report` open as long as they live."""
    import cafcat.operations.ingest.coordinator
    import cafcat.operations.ingest.worker_pool

    vars(cafcat.operations.ingest.coordinator)["_WORTH_FILES"] = 1
    vars(cafcat.operations.ingest.worker_pool)["_PIECE_FILES"] = _PIECE_FILES
    os.setpgid(0, 0)
    count = 0

    class Worker(subprocess.Popen[bytes]):
        def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int], **named: Any) -> None:
            nonlocal count
            count += 1
            *python, program = command
            named["process_group"] = os.getpgid(0)
            joining = _joining(order, report, count)
            super().__init__([*python, f"{joining}; {program}"], pass_fds=[*pass_fds, report], **named)

    vars(subprocess)["Popen"] = Worker


def _joining(order: dict[str, Any], report: int, number: int) -> str:
    told = {name: order[name] for name in ("victim", "kill_at", "kill_before")}
    return (
        f"import sys; sys.path.insert(0, {str(PROJECT)!r}); from tests.crash.team import join; "
        f"join({json.dumps(told)!r}, {report}, {number})"
    )


def join(order: str, report: int, number: int) -> None:
    """In a worker, before it does anything."""
    reporter(report, number)("started", str(os.getpid()))
    boundaries_of(json.loads(order), report, number).arm(s3=os.environ["CAFCAT_STORE"].startswith("s3:"))

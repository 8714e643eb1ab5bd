"""An ingest by several workers, of which one or all are killed: code for its leader and its workers.

cafcat starts a team only for many files, and gives it large pieces of work. Here a team starts with one file and
gets small pieces.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.crash.boundaries import Boundaries

__all__ = ["Victim", "boundaries_of", "join", "lead", "reporter", "work_in_threads"]

PROJECT = Path(__file__).parents[2]
_PIECE_FILES = 3


class Victim(NamedTuple):
    """The process that is killed: the leader (0), or a worker (numbered from 1 in the order of their start).

    everybody: all other processes are killed with it.
    """

    number: int
    everybody: bool = False


def reporter(report: int, number: int) -> Callable[[str, str], object]:
    """Return a function that writes lines of JSON into a pipe.

    Several processes write to the pipe. Each line is short enough to be written as a whole.
    """
    write = os.write
    return lambda kind, text: write(report, f"{json.dumps([number, kind, text])}\n".encode())


def boundaries_of(order: dict[str, Any], report: int, number: int = 0) -> Boundaries:
    """Return the boundaries of a process of a team, or of a single process."""
    victim, everybody = order.get("victim") or (0, False)
    kill_at, kill_before = (order["kill_at"], order["kill_before"]) if number == victim else (None, ())
    more = {"kill": lambda: os.killpg(0, signal.SIGKILL)} if everybody else {}
    return Boundaries(kill_at, kill_before, reporter(report, number), **more)


def work_in_threads() -> None:
    """Let a thread commit every full chunk of this process, and two threads pack few files if there are two jobs.

    Without this function, only large chunks are committed by threads, and only many files are packed by them.
    """
    import cafcat.operations.ingest.coordinator
    import cafcat.operations.ingest.packer
    import cafcat.operations.ingest.worker_pool

    for module, name, value in (
        (cafcat.operations.ingest.packer, "_LARGE_FILES", 1),
        (cafcat.operations.ingest.coordinator, "_WORKER_FILES", 1),
        (cafcat.operations.ingest.worker_pool, "_PIECE_FILES", _PIECE_FILES),
    ):
        assert hasattr(module, name), name
        setattr(module, name, value)


def lead(order: dict[str, Any], report: int) -> None:
    """Prepare this process to lead a team of processes.

    The workers are in its process group, which can be killed as a whole. They keep the pipe `report` open as long
    as they live.
    """
    import cafcat.operations.ingest.coordinator

    vars(cafcat.operations.ingest.coordinator)["_MOST_THREADS"] = 0
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
    victim = {name: order[name] for name in ("victim", "kill_at", "kill_before")}
    return (
        f"import sys; sys.path.insert(0, {str(PROJECT)!r}); from tests.crash.team import join; "
        f"join({json.dumps(victim)!r}, {report}, {number})"
    )


def join(order: str, report: int, number: int) -> None:
    """Prepare a worker, before it does anything else."""
    work_in_threads()
    reporter(report, number)("started", str(os.getpid()))
    boundaries_of(json.loads(order), report, number).arm(s3=os.environ["CAFCAT_STORE"].startswith("s3:"))

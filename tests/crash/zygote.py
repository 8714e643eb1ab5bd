"""Run commands of cafcat in children that have imported everything: `python -m tests.crash.zygote`.

Each line of the input is a JSON document: arguments, environment, folder, output (a file for stdout and stderr),
kill_at or kill_before (boundaries.py), and the victim if the command is an ingest by a team (team.py). The answer
is one line: the exit code, the boundaries that the victim passed, the boundary of the kill if there was one, and
the remaining processes.

tests/worlds/fork_server.py works in a similar way. This program also counts the steps of the children, and kills
them.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
import traceback
from typing import Any

from tests.crash.team import boundaries_of, lead, work_in_threads
from tests.worlds.fork_server import freeze, import_everything

_LEAVE_SECONDS = 30.0
"""How long a process may outlive its leader, in seconds."""


def run_child(order: dict[str, Any], report: int) -> None:
    """Run the command in this child. Never returns."""
    boundaries = boundaries_of(order, report)
    code = 70
    try:
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["folder"])
        output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        work_in_threads()
        if order.get("victim"):
            lead(order, report)
        boundaries.arm()
        from cafcat.cli.app import run

        code = run(order["arguments"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def answer(order: dict[str, Any]) -> dict[str, Any]:
    """Fork a child, wait for it, and return the answer."""
    reading, report = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        run_child(order, report)
    os.close(report)
    with os.fdopen(reading, "rb") as pipe:
        text, status, is_closed = hear(pipe.fileno(), child)
    lines = [json.loads(line) for line in text.splitlines()]
    workers = [int(text) for _, kind, text in lines if kind == "started"]
    number = (order.get("victim") or [0])[0]
    return {
        "code": os.waitstatus_to_exitcode(status),
        "label": next((text for _, kind, text in lines if kind == "killed"), None),
        "passed": [text for who, kind, text in lines if kind == "passed" and who == number],
        "left": [] if is_closed else end(workers),
    }


def hear(pipe: int, child: int) -> tuple[bytes, int, bool]:
    """Read the reports of all processes that have the other end of the pipe, until all have ended.

    Returns:
        The reports, the wait status of the child, and False if other processes outlived the child for too long.
    """
    text, status = b"", None
    ends_at = float("inf")
    while time.monotonic() < ends_at:
        if select.select([pipe], [], [], 0.05)[0]:
            block = os.read(pipe, 1 << 16)
            if not block:
                return text, os.waitpid(child, 0)[1] if status is None else status, True
            text += block
        elif status is None and (ended := os.waitpid(child, os.WNOHANG))[0]:
            status, ends_at = ended[1], time.monotonic() + _LEAVE_SECONDS
    assert status is not None
    return text, status, False


def end(workers: list[int]) -> list[int]:
    """Kill the workers, and return those that were still running."""
    left = []
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
            left.append(worker)
    return left


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    import_everything()
    freeze()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()

"""Runs commands of cafcat in children that have everything imported already: `python -m tests.crash.zygote`.

Reads a JSON document a line: arguments, environment, folder, output (a file for what the command prints), kill_at
or kill_before (boundaries.py), and the victim if it is one of a team (team.py). Answers each with one: the exit
code, the boundaries that the victim passed, the one at which it was killed, if it was, and what did not leave.

It is like tests/worlds/fork_server.py, but counts what the children do, and kills them.
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

from tests.crash.team import boundaries_of, lead
from tests.worlds.fork_server import freeze, import_everything

_LEAVE_SECONDS = 30.0
"""So long a process may live on whose leader is gone."""


def run_child(order: dict[str, Any], report: int) -> None:
    """In the child: never returns."""
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
    """Forks, waits, tells."""
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
    """What all that have the other end of the pipe write into it, until all are gone; how the child ended; and
    whether the others are gone, too, which they have some time for."""
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
    """Those of these that are there, which they then are no longer."""
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

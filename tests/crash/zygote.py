"""Runs commands of cafcat in children that have everything imported already: `python -m tests.crash.zygote`.

Reads a JSON document a line: arguments, environment, folder, output (a file for what the command prints), and
kill_at or kill_before (boundaries.py). Answers each with one: the exit code, and the boundaries that were passed;
or -9, and the one at which it was killed.

This process has one thread, no connection and no client: that is what may be forked. awscrt, boto3 and obstore
start their threads when they are first used, which is in the children.
"""

import contextlib
import functools
import gc
import json
import os
import sys
import threading
import traceback
from typing import Any

from tests.crash.boundaries import Boundaries

OTHERS = ("alembic.command", "awscrt.checksums", "google_crc32c", "obstore.auth.boto3", "obstore.store")


def import_everything() -> None:
    """All that a verb may want."""
    import importlib
    import pkgutil

    import boto3

    import cafcat

    for name in OTHERS:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(cafcat.__path__, "cafcat."):
        if not module.name.startswith("cafcat.testing"):
            with contextlib.suppress(ImportError):  # of an extra that is not there
                importlib.import_module(module.name)
    remember_descriptions()
    remember_commands()
    boto3.Session().client("s3", region_name="us-east-1", endpoint_url="http://127.0.0.1:1")


def remember_descriptions() -> None:
    """boto3 reads and parses megabytes of JSON for every client: here once for all children."""
    from botocore.loaders import JSONFileLoader

    loader: Any = JSONFileLoader
    loader.load_file = functools.cache(loader.load_file)
    loader.__hash__ = lambda _self: 0
    loader.__eq__ = lambda _self, other: isinstance(other, loader)


def remember_commands() -> None:
    """Typer makes the tree of all verbs anew for every call."""
    import typer.main

    from cafcat.cli.app import app

    typer.main.get_command = functools.cache(typer.main.get_command)
    all_verbs: Any = typer.main.get_command(app)
    list(all_verbs.commands.values())


def run_child(order: dict[str, Any], report: int) -> None:
    """In the child: never returns."""
    write = os.write
    boundaries = Boundaries(order.get("kill_at"), order["kill_before"], lambda label: write(report, label.encode()))
    code = 70
    try:
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["folder"])
        output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
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
        write(report, json.dumps(boundaries.passed).encode())
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
        text = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "label": text} if code < 0 else {"code": code, "passed": json.loads(text)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    import_everything()
    gc.collect()
    gc.freeze()  # else the first collection of each child would copy all pages
    assert threading.active_count() == 1
    assert len(os.listdir("/proc/self/task")) == 1 if os.path.isdir("/proc/self/task") else True
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()

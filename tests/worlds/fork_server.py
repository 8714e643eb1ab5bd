"""A process that has imported all of cafcat and forks a child for each command.

`python -W error -m tests.worlds.fork_server DESCRIPTOR` receives orders from the socket of that number. An order is
its length in 8 bytes, and a JSON object: program, arguments, environment, umask, folder. With the length come
descriptors of four files: stdin, stdout and stderr of the command, and a pipe for answers. The server writes two
lines to the pipe: the process id of the child, and its wait status.

The server has one thread, no connection and no client, so that it can be forked. awscrt, boto3 and obstore start
their threads when they are first used, which is in the children.
"""

import atexit
import contextlib
import functools
import gc
import json
import os
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any, NoReturn

__all__ = ["LENGTH_BYTES", "import_everything"]

LENGTH_BYTES = 8
OTHERS = ("alembic.command", "awscrt.checksums", "google_crc32c", "obstore.auth.boto3", "obstore.store")


def import_everything() -> None:
    """Import every module that a command may need."""
    import importlib
    import pkgutil

    import boto3

    import cafcat

    for name in OTHERS:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(cafcat.__path__, "cafcat."):
        if not module.name.startswith("cafcat.testing"):
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(module.name)
    cache_descriptions()
    cache_commands()
    boto3.Session().client("s3", region_name="us-east-1", endpoint_url="http://127.0.0.1:1")


def cache_descriptions() -> None:
    """Parse boto3's descriptions of services once. boto3 parses megabytes of JSON for every client."""
    from botocore.loaders import JSONFileLoader

    loader: Any = JSONFileLoader
    loader.load_file = functools.cache(loader.load_file)
    loader.__hash__ = lambda _self: 0
    loader.__eq__ = lambda _self, other: isinstance(other, loader)


def cache_commands() -> None:
    """Build typer's tree of all commands once. Typer builds the tree for every call."""
    import typer.main

    from cafcat.cli.app import app

    typer.main.get_command = functools.cache(typer.main.get_command)
    all_verbs: Any = typer.main.get_command(app)
    for name in all_verbs.commands:
        all_verbs.get_command(None, name)


def freeze() -> None:
    """Exclude all objects from garbage collection, which would copy their memory in each child."""
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1
    assert len(os.listdir("/proc/self/task")) == 1 if os.path.isdir("/proc/self/task") else True


def receive(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return an order and its descriptors; an empty order at the end."""
    length, descriptors, _, _ = socket.recv_fds(control, LENGTH_BYTES, 4, socket.MSG_WAITALL)
    if not length:
        return {}, []
    text = control.recv(int.from_bytes(length), socket.MSG_WAITALL)
    return json.loads(text), descriptors


def run_order(order: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Run a command in this child, as `python -m cafcat` does; or a program, as `python -c` does."""
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    os.umask(order["umask"])
    os.chdir(order["folder"])
    program = order["program"]
    sys.argv = ["cafcat" if program is None else "-c", *order["arguments"]]
    try:
        if program is None:
            runpy.run_module("cafcat", run_name="__main__", alter_sys=True)
        else:
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
        end(0)
    except SystemExit as error:
        end(error.code if isinstance(error.code, int) else 1)
    except BaseException:
        traceback.print_exc()
        end(1)


def end(code: int) -> NoReturn:
    """End this process as an interpreter does, but without freeing memory, which takes longer than a command."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120  # as Python does
    sys.stderr.flush()
    os._exit(code)


def reap(answers: dict[int, int]) -> None:
    """Report the wait status of every child that has ended."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            answer = answers.pop(ended[0])
            os.write(answer, f"{ended[1]}\n".encode())
            os.close(answer)


def serve(control: socket.socket) -> None:
    """Fork a child for each order until the other end of the socket is closed."""
    import select

    ended, ending = os.pipe()
    os.set_blocking(ending, False)
    os.set_blocking(ended, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ending, warn_on_full_buffer=False)
    answers: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control, ended], [], [])
        if ended in ready:
            os.read(ended, 1 << 16)
            reap(answers)
        if control in ready:
            order, descriptors = receive(control)
            if not order:
                return
            child = os.fork()
            if child == 0:
                control.detach()
                run_order(order, descriptors)
            *standard, answers[child] = descriptors
            for descriptor in standard:
                os.close(descriptor)
            os.write(answers[child], f"{child}\n".encode())


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    import_everything()
    del sys.modules["cafcat.__main__"]  # as runpy expects it
    freeze()
    serve(control)


if __name__ == "__main__":
    main()

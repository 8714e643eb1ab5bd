"""The command `cafcat mount`: its flags and output."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Annotated

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.output import one_line
from cafcat.cli.reading.lost import find_lost
from cafcat.errors import OutputFailed

if TYPE_CHECKING:
    from cafcat.mount.background import Background
    from cafcat.mount.mounting import Tree

__all__ = ["register"]


def mount(
    call: Call,
    *,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Empty folder to mount on.")],
    snapshot: Annotated[
        str | None,
        typer.Option("--snapshot", metavar="FILE", help="Mount the files of a snapshot, without the database."),
    ] = None,
    allow_other: Annotated[
        bool, typer.Option("--allow-other", help="Let other users of this machine read the files.")
    ] = False,
    background: Annotated[
        bool, typer.Option("--background", "-b", help="Return once the files are mounted.")
    ] = False,
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="FILE", help="Append messages to this file, instead of printing them."),
    ] = None,
) -> int:
    """Mount the files as a read-only folder of this machine, until Ctrl-C.

    Example: cafcat mount /mnt/photos
    """
    with _log(call, log) as warn:
        if not background:
            _mount(call, directory, snapshot, allow_other=allow_other, warn=warn, background=None)
            return 0
        from cafcat.mount.background import Background

        process = Background.fork()
        if process.exit_code is None:
            _mount(call, directory, snapshot, allow_other=allow_other, warn=warn, background=process)
        return process.exit_code or 0


def _mount(
    call: Call,
    directory: str,
    snapshot: str | None,
    *,
    allow_other: bool,
    warn: Callable[[str], object],
    background: "Background | None",
) -> None:
    from cafcat.mount.mounting import mount

    # libfuse changes the current folder.
    folder, snapshot_file = os.path.abspath(directory), snapshot and os.path.abspath(snapshot)

    def ready() -> None:
        line = f"mounted on {call.output.shown(directory)}"
        line += "" if background else "; Ctrl-C unmounts"
        call.summarize({"mounted": folder, "snapshot": snapshot_file, "pid": os.getpid()}, [line])
        call.output.flush()
        if background:
            background.ready()

    with ExitStack() as opened:
        tree = _tree(call, opened, snapshot, warn)
        mount(tree, directory, allow_other=allow_other, warn=warn, ready=ready)


def _tree(call: Call, opened: ExitStack, snapshot: str | None, warn: Callable[[str], object]) -> "Tree":
    from cafcat.mount.mounting import tree_of_catalog, tree_of_snapshot

    if snapshot is not None:
        return opened.enter_context(tree_of_snapshot(snapshot, call.settings(), warn))
    repository = opened.enter_context(call.files())
    tree = opened.enter_context(tree_of_catalog(repository, warn))
    if (lost := find_lost(repository.session)) is not None:
        warn(str(lost))
    return tree


@contextmanager
def _log(call: Call, name: str | None) -> Iterator[Callable[[str], object]]:
    """Yield a function that prints a message on stderr, or appends it to a file."""
    if name is None:
        yield call.warn
        return
    try:
        file = open(name, "a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115 - closed below
    except OSError as error:
        raise OutputFailed(f"the log cannot be written: {error.strerror}", path=name) from error
    with file:
        yield lambda message: _append(file, message)


def _append(file: IO[str], message: str) -> None:
    with suppress(OSError):  # a full disk must not end the mount
        file.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {one_line(message)}\n")
        file.flush()


def register(app: typer.Typer) -> None:
    """Add `cafcat mount` to the commands of the program."""
    verb(app, "mount", mount)

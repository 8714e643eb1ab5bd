"""The program clp-s, as the package yscope-clp-core brings it: cafcat's extra `clp`.

It runs in a process group of its own: Ctrl-C is for cafcat, which ends it.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final, NamedTuple

from cafcat.errors import CafcatError, InvalidInput, NotInstalled

__all__ = ["Finished", "ProgramFailed", "below", "check_query", "compress", "program", "search"]

_POLL_SECONDS: Final = 0.1
_MESSAGES_BYTES: Final = 64 << 10
_SHOWN_CHARACTERS: Final = 400
_MESSAGE: Final = re.compile(r"\S+ \[(\w+)\] (.*)")
_SPECIAL: Final = re.compile(r'[\\"*?]')
_QUERY_ERROR: Final = "Parser error"


class ProgramFailed(CafcatError):
    """clp-s ended with an error: the message is its own."""


class Finished(NamedTuple):
    """How clp-s ended. error: its messages in one line, None if all went well; warnings: a line each."""

    error: str | None
    warnings: Sequence[str]


def program() -> Path:
    """Where clp-s is. Raises NotInstalled if it is not installed."""
    package = find_spec("yscope_clp_core")
    path = Path(package.origin).parent / "bin" / "clp-s" if package is not None and package.origin else None
    if path is None or not path.is_file():
        raise NotInstalled("the program clp-s is not installed", hint="pip install 'cafcat[clp]' (on Linux)")
    return path


def search(
    archive: str | int,
    query: str,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    ignore_case: bool = False,
    projection: Sequence[str] = (),
) -> Generator[bytes, None, None]:
    """Records of an archive that match a query, as JSON, without the newline. archive: a path, or a descriptor of a
    regular file; times: both inclusive. Memory: one record. The program ends when the iterator is closed.

    Raises ProgramFailed, Unsupported."""
    descriptors = [archive] if isinstance(archive, int) else []
    path = f"/dev/fd/{archive}" if isinstance(archive, int) else archive
    # What begins with a dash would be an option; space before a query means nothing.
    command = [str(program()), "s", path, f" {query}"]
    command += [] if from_ms is None else ["--tge", str(from_ms)]
    command += [] if to_ms is None else ["--tle", str(to_ms)]
    command += ["-i"] if ignore_case else []
    command += ["--projection", *projection] if projection else []
    with tempfile.TemporaryFile() as messages:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            pass_fds=descriptors,
            process_group=0,
        ) as process:
            try:
                assert process.stdout is not None  # noqa: S101 - it is a pipe
                for line in process.stdout:
                    yield line.removesuffix(b"\n")
                code = process.wait()
            finally:
                process.kill()
        error = _finished(code, messages).error
    if error is not None:
        raise ProgramFailed(f"clp-s: {error}")


def check_query(query: str) -> None:
    """Raises InvalidInput for a query that is none: the program says so before it opens an archive."""
    try:
        for _ in search(os.devnull, query):
            pass
    except ProgramFailed as error:
        _, found, reason = error.message.partition(_QUERY_ERROR)
        if found:
            hint = "write key: value, as in level: ERROR"
            raise InvalidInput(f"not a query: {reason.strip(': ')}", hint=hint) from error


def below(prefix: str, query: str) -> str:
    """The query for records of log files below a folder, or of that name."""
    name = _SPECIAL.sub(r"\\\g<0>", prefix)
    return f'($_filename: "{name}" OR $_filename: "{name}/*") AND ({query})'


def compress(
    output: Path, names: Path, folder: Path, *, timestamp_key: str | None, checkpoint: Callable[[], object]
) -> Finished:
    """Makes single-file archives in the folder `output` of the log files that `names` lists, one a line, as seen
    from `folder`. checkpoint: is called while it works, and may raise to end it. Raises NotInstalled."""
    command = [str(program()), "c", "--single-file-archive"]
    command += [] if timestamp_key is None else ["--timestamp-key", timestamp_key]
    with tempfile.TemporaryFile() as messages:
        with subprocess.Popen(
            [*command, str(output), "-f", str(names)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=messages,
            process_group=0,
        ) as process:
            try:
                code = _wait(process, checkpoint)
            finally:
                process.kill()
        return _finished(code, messages)


def _wait(process: "subprocess.Popen[bytes]", checkpoint: Callable[[], object]) -> int:
    while True:
        try:
            return process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            checkpoint()


def _finished(code: int, messages: IO[bytes]) -> Finished:
    """Lines are "TIME [LEVEL] MESSAGE"; of others, as a hint how to use it, the first counts."""
    messages.seek(0)
    lines = messages.read(_MESSAGES_BYTES).decode(errors="replace").splitlines()
    found = [(match[1], match[2].strip()) for line in lines if (match := _MESSAGE.fullmatch(line))]
    warnings = [text[:_SHOWN_CHARACTERS] for level, text in found if level == "warning"]
    if code == 0:
        return Finished(None, warnings)
    errors = [text for level, text in found if level in ("error", "critical")] or lines[:1]
    errors += [f"it was ended by signal {-code}"] if code < 0 else []
    return Finished("; ".join(errors)[:_SHOWN_CHARACTERS] or f"it ended with code {code}", warnings)

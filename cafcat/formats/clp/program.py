"""The program clp-s, as the package yscope-clp-core brings it: cafcat's extra `clp`.

It runs in a process group of its own: Ctrl-C is for cafcat, which ends it.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final, NamedTuple

from cafcat.errors import CafcatError, InvalidInput, NotInstalled
from cafcat.formats.clp.header import HEADER_BYTES, parse_header

__all__ = ["Finished", "MatchesNothing", "ProgramFailed", "below", "check_query", "compress", "program", "search"]

_POLL_SECONDS: Final = 0.1
_MESSAGES_BYTES: Final = 256 << 10
"""A message may have the whole query in it, which is less than 128 KiB."""
_SHOWN_CHARACTERS: Final = 400
_MESSAGE: Final = re.compile(r"\S+ \[(\w+)\] (.*)")
_SPECIAL: Final = re.compile(r'[\\"*?]')
_QUERY_ERROR: Final = re.compile(r"Parser error:?\s*(.*)|(Failed to parse timestamp .*)")
_MATCHES_NOTHING: Final = "is logically false"
_SEARCHED_SINCE: Final = (0, 5, 0)
"""Archives of this version, which clp-s writes now, and later ones."""
_LAST_MS: Final = ((1 << 63) - 1) // 1_000_000
"""2262-04-11T23:47:16.854, and as long before 1970: clp-s makes nanoseconds of 64 bits of it, and wraps around."""

_VARIABLES: Final = (
    "PATH",
    "LD_LIBRARY_PATH",
    "NIX_LD",
    "NIX_LD_LIBRARY_PATH",
    "TMPDIR",
    "TZ",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
)
"""Environment variables that clp-s gets. The others may be secrets: database URLs, keys of S3."""


class ProgramFailed(CafcatError):
    """clp-s ended with an error: the message is its own."""


class MatchesNothing(ProgramFailed):
    """The query cannot be true of any record of the archive: a word that is asked of numbers, as in n > abc."""


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


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


def search(
    archive: str | int,
    query: str,
    prefix: str = "",
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    ignore_case: bool = False,
    projection: Sequence[str] = (),
) -> Generator[bytes, None, None]:
    """Records of an archive that match a query, as JSON, without the newline. archive: a path, or a descriptor of a
    regular file; prefix: only of log files below that folder, or of that name; times: both inclusive. Memory: one
    record. The program ends when the iterator is closed.

    Raises ProgramFailed, MatchesNothing, NotInstalled."""
    if (from_ms or 0) > _LAST_MS or (to_ms or 0) < -_LAST_MS:
        return
    descriptors = [archive] if isinstance(archive, int) else []
    path = f"/dev/fd/{archive}" if isinstance(archive, int) else archive
    asked = below(prefix, query) if prefix else query
    # What begins with a dash would be an option; space before a query means nothing.
    command = [str(program()), "s", path, f" {asked}", *_options(from_ms, to_ms, ignore_case, projection)]
    with tempfile.TemporaryFile() as messages:
        with subprocess.Popen(
            command,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            pass_fds=descriptors,
            process_group=0,
        ) as process:
            try:
                assert process.stdout is not None  # noqa: S101 - it is a pipe
                for line in process.stdout:
                    if line.endswith(b"\n"):  # when it aborts, it may be in the middle of a record
                        yield line.removesuffix(b"\n")
                code = process.wait()
            finally:
                process.kill()
        if code:
            raise _failure(code, _text(messages), archive)


def _options(from_ms: int | None, to_ms: int | None, ignore_case: bool, projection: Sequence[str]) -> list[str]:
    options = [] if from_ms is None else ["--tge", str(max(from_ms, -_LAST_MS))]
    options += [] if to_ms is None else ["--tle", str(min(to_ms, _LAST_MS))]
    options += ["-i"] if ignore_case else []
    # The same column twice is an error for it.
    return options + (["--projection", *dict.fromkeys(projection)] if projection else [])


def _failure(code: int, text: str, archive: str | int) -> ProgramFailed:
    """What a search ended with. text: its messages."""
    if code > 0 and text.endswith(_MATCHES_NOTHING):
        return MatchesNothing("the query cannot be true of any record there")
    if code < 0 and (old := _old_version(archive)) is not None:
        return ProgramFailed(f"{old} (signal {-code} ended it)")
    return ProgramFailed(f"clp-s: {_finished(code, text).error}")


def _old_version(archive: str | int) -> str | None:
    """What is to be said of an archive of an older version than clp-s writes now: at some of these it aborts."""
    with suppress(OSError, CafcatError), open(archive, "rb", closefd=isinstance(archive, str)) as file:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(0)
        version = parse_header(file.read(HEADER_BYTES), size_bytes, str(archive)).version
        if version < _SEARCHED_SINCE:
            return f"it is of version {'.'.join(map(str, version))}, which the installed clp-s cannot search"
    return None


def check_query(query: str) -> None:
    """Raises InvalidInput for a query that is none: the program says so before it opens an archive."""
    try:
        for _ in search(os.devnull, query):
            pass
    except ProgramFailed as error:
        if (found := _QUERY_ERROR.search(error.message)) is not None:
            hint = "write key: value, as in level: ERROR"
            raise InvalidInput(f"not a query: {found[1] or found[2]}", hint=hint) from error


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
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=messages,
            process_group=0,
        ) as process:
            try:
                code = _wait(process, checkpoint)
            finally:
                process.kill()
        return _finished(code, _text(messages))


def _wait(process: "subprocess.Popen[bytes]", checkpoint: Callable[[], object]) -> int:
    while True:
        try:
            return process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            checkpoint()


def _text(messages: IO[bytes]) -> str:
    messages.seek(0)
    return messages.read(_MESSAGES_BYTES).decode(errors="replace").rstrip()


def _finished(code: int, text: str) -> Finished:
    """Lines are "TIME [LEVEL] MESSAGE"; of others, as a hint how to use it, the first counts."""
    lines = text.splitlines()
    found = [(match[1], match[2].strip()) for line in lines if (match := _MESSAGE.fullmatch(line))]
    warnings = [text[:_SHOWN_CHARACTERS] for level, text in found if level == "warning"]
    if code == 0:
        return Finished(None, warnings)
    errors = [text for level, text in found if level in ("error", "critical")] or lines[:1]
    errors += [f"it was ended by signal {-code}"] if code < 0 else []
    return Finished("; ".join(errors)[:_SHOWN_CHARACTERS] or f"it ended with code {code}", warnings)

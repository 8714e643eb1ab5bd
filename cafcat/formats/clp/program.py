"""Runs the program clp-s of the package yscope-clp-core, which cafcat's extra `clp` installs.

The program runs in a process group of its own: Ctrl-C only reaches cafcat, which then ends clp-s.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final, NamedTuple

from cafcat.errors import CafcatError, InvalidInput, NotInstalled
from cafcat.formats.clp.header import HEADER_BYTES, parse_header
from cafcat.progress import Progress

__all__ = [
    "CompressResult",
    "MatchesNothing",
    "ProgramFailed",
    "check_query",
    "compress",
    "program_path",
    "query_below",
    "search",
]

_POLL_SECONDS: Final = 0.1
"""Interval in seconds for calls of `checkpoint`."""
_MAX_QUERY_BYTES: Final = 100_000
"""Longest query in bytes. Linux passes an argument of at most 128 KiB to a program (MAX_ARG_STRLEN)."""
_MAX_MESSAGES_BYTES: Final = 256 << 10
"""Largest number of bytes of messages that are read. A message may contain the whole query, which has less than 128
KiB."""
_SHOWN_CHARACTERS: Final = 400
"""Largest number of characters of a message that are shown."""
_MESSAGE: Final = re.compile(r"\S+ \[(\w+)\] (.*)")
_SPECIAL: Final = re.compile(r'[\\"*?]')
_QUERY_ERROR: Final = re.compile(r"Parser error:?\s*(.*)|(Failed to parse timestamp .*)")
_MATCHES_NOTHING: Final = "is logically false"
_SEARCHED_SINCE: Final = (0, 5, 0)
"""Oldest version of archives that the installed clp-s can search. clp-s also writes this version."""
_LAST_MS: Final = ((1 << 63) - 1) // 1_000_000
"""Largest time in milliseconds since 1970-01-01 UTC (2262-04-11T23:47:16.854) that fits 64-bit nanoseconds. clp-s
converts to nanoseconds and overflows beyond this, in both directions."""

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
"""Environment variables that are passed to clp-s. Others may contain secrets, such as database URLs or S3 keys."""


class ProgramFailed(CafcatError):
    """The program clp-s ended with an error, or a signal ended it. The message usually contains that of clp-s."""


class MatchesNothing(ProgramFailed):
    """A search query cannot match any record of an archive, for example because it compares a word with numbers."""


class CompressResult(NamedTuple):
    """The result of one run of the program clp-s.

    Attributes:
        error: the error messages of clp-s in one line, or None if it succeeded.
        warnings: the warnings of clp-s, one line each.
    """

    error: str | None
    warnings: Sequence[str]


def program_path() -> Path:
    """Return the path of the installed program clp-s.

    Raises:
        NotInstalled: clp-s is not installed.
    """
    package = find_spec("yscope_clp_core")
    path = Path(package.origin).parent / "bin" / "clp-s" if package is not None and package.origin else None
    if path is None or not path.is_file():
        raise NotInstalled("the program clp-s is not installed", hint=f"{NotInstalled.remedy('clp')} (on Linux)")
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
    """Search a clp-s archive with the program clp-s, and yield the matching records as JSON, without newlines.

    Memory: one record. clp-s is ended when the iterator is closed. clp-s can represent times from 1677 to 2262: if
    `from_ms` is later, or `to_ms` is earlier, no record is yielded, and clp-s is not run.

    Args:
        archive: a path, or the descriptor of a regular file.
        query: the query, in the language of clp-s.
        prefix: if not empty, only log files in this folder, or with this name, are searched.
        from_ms: earliest time, inclusive, in milliseconds since 1970-01-01 UTC; None for no limit.
        to_ms: latest time, inclusive, in milliseconds since 1970-01-01 UTC; None for no limit.
        ignore_case: True to ignore the case of letters.
        projection: the columns of a record to return; all if empty.

    Raises:
        ProgramFailed: clp-s failed, for example because the query is invalid. Raised after the last record.
        MatchesNothing: the query cannot match any record of the archive.
        NotInstalled: clp-s is not installed.
    """
    if (from_ms or 0) > _LAST_MS or (to_ms or 0) < -_LAST_MS:
        return
    descriptors = [archive] if isinstance(archive, int) else []
    path = f"/dev/fd/{archive}" if isinstance(archive, int) else archive
    scoped_query = query_below(prefix, query) if prefix else query
    # A query that begins with a dash would be parsed as an option. A leading space prevents that and is ignored.
    command = [
        str(program_path()),
        "s",
        path,
        f" {scoped_query}",
        *_options(from_ms, to_ms, ignore_case, projection),
    ]
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
                assert process.stdout is not None  # noqa: S101 - stdout=PIPE
                for line in process.stdout:
                    if line.endswith(b"\n"):  # if clp-s aborts, its last record may be incomplete
                        yield line.removesuffix(b"\n")
                exit_code = process.wait()
            finally:
                process.kill()
        if exit_code:
            raise _failure(exit_code, _text(messages), archive)


def _options(from_ms: int | None, to_ms: int | None, ignore_case: bool, projection: Sequence[str]) -> list[str]:
    options = [] if from_ms is None else ["--tge", str(max(from_ms, -_LAST_MS))]
    options += [] if to_ms is None else ["--tle", str(min(to_ms, _LAST_MS))]
    options += ["-i"] if ignore_case else []
    # clp-s refuses repeated columns.
    return options + (["--projection", *dict.fromkeys(projection)] if projection else [])


def _failure(exit_code: int, text: str, archive: str | int) -> ProgramFailed:
    """Return (not raise) the error for a failed search. `text` has the messages of clp-s."""
    if exit_code > 0 and text.endswith(_MATCHES_NOTHING):
        return MatchesNothing("the query cannot match any record of this archive")
    if exit_code < 0 and (old := _old_version(archive)) is not None:
        return ProgramFailed(f"{old} (signal {-exit_code} ended it)")
    return ProgramFailed(f"clp-s: {_result(exit_code, text).error}")


def _old_version(archive: str | int) -> str | None:
    """Return a message if the archive has an older version than the installed clp-s can search; otherwise None.

    clp-s aborts on some of these archives without a message.
    """
    with suppress(OSError, CafcatError), open(archive, "rb", closefd=isinstance(archive, str)) as file:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(0)
        version = parse_header(file.read(HEADER_BYTES), size_bytes, str(archive)).version
        if version < _SEARCHED_SINCE:
            return f"the installed clp-s cannot search archives of version {'.'.join(map(str, version))}"
    return None


def check_query(query: str) -> None:
    """Check the syntax of a search query, by a run of clp-s on an empty file. Any other error of clp-s is ignored.

    Raises:
        InvalidInput: the query is invalid, not valid UTF-8, or longer than 100,000 bytes.
        NotInstalled: clp-s is not installed.
    """
    try:
        size_bytes = len(query.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput("the query is not valid UTF-8") from error
    if size_bytes > _MAX_QUERY_BYTES:
        raise InvalidInput(f"the query is longer than {_MAX_QUERY_BYTES:,} bytes ({size_bytes:,})")
    try:
        for _ in search(os.devnull, query):
            pass
    except ProgramFailed as error:
        if (found := _QUERY_ERROR.search(error.message)) is not None:
            hint = "write key: value, as in level: ERROR"
            raise InvalidInput(f"invalid query: {found[1] or found[2]}", hint=hint) from error


def query_below(prefix: str, query: str) -> str:
    """Return a query that restricts `query` to records of log files in one folder, or of one log file.

    Args:
        prefix: name of the folder or of the log file, unescaped: this function escapes the special characters of
            the query language.
        query: the query for the records, in the language of clp-s.
    """
    name = _SPECIAL.sub(r"\\\g<0>", prefix)
    return f'($_filename: "{name}" OR $_filename: "{name}/*") AND ({query})'


def compress(
    output: Path, names: Path, folder: Path, *, timestamp_key: str | None, progress: Progress
) -> CompressResult:
    """Run clp-s to write single-file archives from log files. clp-s may make several archives.

    Args:
        output: folder in which clp-s creates the archives.
        names: file with the names of the log files, one per line, relative to `folder`.
        folder: working folder of clp-s.
        timestamp_key: JSON key that holds the timestamp of a record, or None.
        progress: its `checkpoint` is called every 0.1 seconds while clp-s runs. If it raises, clp-s is ended.

    Returns:
        Whether clp-s succeeded, and its messages. A failure of clp-s is not raised.

    Raises:
        NotInstalled: clp-s is not installed.
    """
    command = [str(program_path()), "c", "--single-file-archive"]
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
                exit_code = _wait(process, progress)
            finally:
                process.kill()
        return _result(exit_code, _text(messages))


def _wait(process: "subprocess.Popen[bytes]", progress: Progress) -> int:
    while True:
        try:
            return process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            progress.checkpoint()


def _text(messages: IO[bytes]) -> str:
    messages.seek(0)
    return messages.read(_MAX_MESSAGES_BYTES).decode(errors="replace").rstrip()


def _result(exit_code: int, text: str) -> CompressResult:
    """Make a result from the exit code of clp-s and its messages in `text`.

    The lines of messages have the form "TIME [LEVEL] MESSAGE". If clp-s failed without such a line of an error, the
    first line is the error. A negative exit code is the number of the signal that ended clp-s.
    """
    lines = text.splitlines()
    found = [(match[1], match[2].strip()) for line in lines if (match := _MESSAGE.fullmatch(line))]
    warnings = [text[:_SHOWN_CHARACTERS] for level, text in found if level == "warning"]
    if exit_code == 0:
        return CompressResult(None, warnings)
    errors = [text for level, text in found if level in ("error", "critical")] or lines[:1]
    errors += [f"clp-s was ended by signal {-exit_code}"] if exit_code < 0 else []
    return CompressResult(
        "; ".join(dict.fromkeys(errors))[:_SHOWN_CHARACTERS] or f"clp-s ended with exit code {exit_code}", warnings
    )

"""Printing on stdout and stderr: lines for people, JSON for programs."""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cafcat.errors import OutputFailed
from cafcat.model import Entry, Folder, Location

__all__ = [
    "Output",
    "entry_document",
    "folder_document",
    "location_document",
    "one_line",
    "plural",
    "printable",
    "timestamp",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(modified_ns: int | None) -> str | None:
    """Return a time in UTC as in RFC 3339, such as "2026-11-21T10:00:00.123456Z"; None for an unknown time, or one
    beyond the years 1 to 9999."""
    if modified_ns is None:
        return None
    try:
        when = _EPOCH + timedelta(microseconds=modified_ns // 1000)
    except OverflowError:
        return None
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """Return a text with escapes for all characters that could move a terminal's cursor, as `ls -b` does."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def one_line(text: str) -> str:
    """Return a message in one line, with escapes for control characters."""
    return printable(re.sub(r"\s*\n\s*", " ", text.strip()))


def plural(count: int, word: str) -> str:
    """ "1 file", "2 files"."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def location_document(location: Location, archive: str) -> dict[str, Any]:
    """Return a file as a JSON document: docs/cli.md lists the keys."""
    document = {
        "path": location.path,
        "size_bytes": location.size_bytes,
        "start_byte": location.start_byte,
        "end_byte": location.end_byte,
        "crc32c": location.crc32c,
        "modified_at": timestamp(location.modified_ns),
        "chunk": str(location.chunk),
        "object": archive,
    }
    return document | _decoding(location)


def entry_document(entry: Entry, archive: str) -> dict[str, Any]:
    """Return a file of an archive without a catalog as a JSON document: all keys of a file but `chunk`. An entry
    that has to be decoded also has its decoded size."""
    document = {
        "path": entry.path,
        "size_bytes": entry.size_bytes,
        "start_byte": entry.start_byte,
        "end_byte": entry.end_byte,
        "crc32c": entry.crc32c,
        "modified_at": timestamp(entry.modified_ns),
        "object": archive,
    }
    content = {} if entry.content_bytes is None else {"content_bytes": entry.content_bytes}
    return document | content | _decoding(entry)


def _decoding(file: Location | Entry) -> dict[str, str]:
    """Return how the format decodes the bytes of the archive into the file; nothing for bytes that are stored as
    they are."""
    return {} if file.decoding is None else {"decoding": file.decoding}


def folder_document(folder: Folder) -> dict[str, Any]:
    """Return a folder of a listing as a JSON document."""
    return {"path": folder.path, "folder": True}


def _json_value(value: Any) -> Any:
    """Return a value that JSON lacks: bytes in hexadecimal, everything else as text."""
    return value.hex() if isinstance(value, (bytes, memoryview)) else str(value)


class _ToStdout:
    """Turns system errors of writes to stdout into OutputFailed. A class, because a generator would cost more per
    line."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise OutputFailed(f"standard output cannot be written: {error.strerror or error}") from error


_TO_STDOUT: Final = _ToStdout()


class Output:
    """stdout and stderr of one call.

    Paths are written as their UTF-8 bytes in every locale. On a terminal, characters that are not printable are
    escaped.
    """

    def __init__(self) -> None:
        self.as_json = False
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        self._on_terminal = sys.stdout.isatty()

    def shown(self, text: str) -> str:
        """Return a name as it is printed for people."""
        return printable(text) if self._on_terminal else text

    def line(self, text: str) -> None:
        """Print a line on stdout. Raises OutputFailed and BrokenPipeError, as all methods that write to stdout."""
        with _TO_STDOUT:
            sys.stdout.write(text + "\n")

    def document(self, document: Mapping[str, Any]) -> None:
        """Print a JSON document in one line on stdout, in ASCII, which is valid in any locale."""
        self.line(_json_line(document))

    def show(self, document: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Print a result: the document with --json, else the lines."""
        if self.as_json:
            self.document(document)
        else:
            for text in lines:
                self.line(text)

    def fields(self, document: Mapping[str, Any], shown: Mapping[str, Any] | None = None) -> None:
        """Print a result of few values: the document with --json, else exactly one line for each value."""
        values = {key: value for key, value in (shown or document).items() if value is not None}
        width = max(map(len, values), default=0)
        self.show(document, (f"{key:<{width}}  {self._in_one_line(str(value))}" for key, value in values.items()))

    def _in_one_line(self, text: str) -> str:
        return printable(text) if "\n" in text else self.shown(text)

    def raw(self, data: bytes) -> None:
        """Write bytes to stdout."""
        with _TO_STDOUT:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)

    def raw_line(self, data: bytes) -> None:
        """Write bytes and a newline to stdout; on a terminal at once, because other messages may follow."""
        with _TO_STDOUT:
            sys.stdout.buffer.write(data + b"\n")
            if self._on_terminal:
                sys.stdout.buffer.flush()

    def flush(self) -> None:
        """Flush stdout."""
        with _TO_STDOUT:
            sys.stdout.flush()

    def notice(self, text: str) -> None:
        """Print a message in one line on stderr: `cafcat: text`, or `{"notice": text}` with --json."""
        if self.as_json:
            self.error_document({"notice": text})
        else:
            self._on_stderr(f"cafcat: {one_line(text)}")

    def error_document(self, document: Mapping[str, Any]) -> None:
        """Print a JSON document in one line on stderr."""
        self._on_stderr(_json_line(document))

    def _on_stderr(self, line: str) -> None:
        # Where both go to one place, the message comes after what was printed before it.
        with suppress(OSError):
            sys.stdout.flush()
        print(line, file=sys.stderr, flush=True)


def _json_line(document: Mapping[str, Any]) -> str:
    return json.dumps(document, default=_json_value)

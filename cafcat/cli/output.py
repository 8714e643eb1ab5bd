"""Prints on stdout and stderr: lines for people, JSON for programs."""

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
    "printable",
    "timestamp",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(modified_ns: int | None) -> str | None:
    """Return a time in UTC as in RFC 3339, such as "2026-11-21T10:00:00.123456Z".

    Args:
        modified_ns: The time in nanoseconds since 1970; None if it is unknown.

    Returns:
        The time, cut to microseconds; None if it is unknown, or not in the years 1 to 9999.
    """
    if modified_ns is None:
        return None
    try:
        when = _EPOCH + timedelta(microseconds=modified_ns // 1000)
    except OverflowError:
        return None
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    r"""Return a text with an escape of Python, such as \n or \x1b, for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def one_line(text: str) -> str:
    """Return a message in one line: a newline becomes a space, other unprintable characters become escapes."""
    return printable(re.sub(r"\s*\n\s*", " ", text.strip()))


def location_document(location: Location, archive: str) -> dict[str, Any]:
    """Return what --json prints for a file of the catalog: path, size, span, checksum, time, chunk and object.

    A file that has to be decoded also has the key `decoding`.

    Args:
        location: Location of the file.
        archive: Absolute path or URL of the chunk's object.
    """
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
    """Return what `cafcat inspect --json` prints for an entry of an archive.

    The keys are those of `location_document` without `chunk`. An entry with a known decoded size also has the key
    `content_bytes`.

    Args:
        entry: The entry.
        archive: Absolute path or URL of the archive.
    """
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
    """Return the key `decoding`, which names how the format decodes the file; {} for a file stored as it is."""
    return {} if file.decoding is None else {"decoding": file.decoding}


def folder_document(folder: Folder) -> dict[str, Any]:
    """Return what `cafcat ls --json` prints for a folder of the catalog."""
    return {"path": folder.path, "folder": True}


def _json_value(value: Any) -> Any:
    """Return a string for a value of a type that JSON lacks: bytes in hexadecimal, any other value by `str`."""
    return value.hex() if isinstance(value, (bytes, memoryview)) else str(value)


class _ToStdout:
    """A context in which an OSError of a write to stdout becomes OutputFailed; BrokenPipeError stays.

    This is a class because a generator would cost more time per line.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise OutputFailed(f"standard output cannot be written: {error.strerror or error}") from error


_TO_STDOUT: Final = _ToStdout()


class Output:
    """Prints on stdout and stderr for one call of cafcat. Creating an Output sets both streams to UTF-8.

    Paths are written as their UTF-8 bytes in every locale. On a terminal, names are shown with escapes for
    characters that are not printable.

    Attributes:
        as_json: True to print results and messages as JSON documents.
    """

    def __init__(self) -> None:
        self.as_json = False
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        self._on_terminal = sys.stdout.isatty()

    def shown(self, text: str) -> str:
        """Return a name as it is printed for people: on a terminal with escapes, else unchanged."""
        return printable(text) if self._on_terminal else text

    def line(self, text: str) -> None:
        """Print a line on stdout.

        All methods that write to stdout raise OutputFailed if that fails, and BrokenPipeError for a closed pipe.
        """
        with _TO_STDOUT:
            sys.stdout.write(text + "\n")

    def names(self, names: Iterable[str], *, null: bool = False) -> None:
        """Print names on stdout, each with a newline, or unchanged and with a NUL, at its end."""
        lines = getattr(names, "lines", None)  # a PathPage has the bytes; get need not load that class
        if lines is not None and not self._on_terminal:
            self.raw(lines.replace(b"\n", b"\0") if null else lines)
            self.raw(b"\0" if null else b"\n")
        elif null:
            self.raw(b"".join(name.encode() + b"\0" for name in names))
        else:
            self.line("\n".join(map(self.shown, names)))

    def document(self, document: Mapping[str, Any]) -> None:
        """Print a JSON document in one line on stdout, in ASCII, which every locale can show."""
        self.line(_json_line(document))

    def show(self, document: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Print a result on stdout: the document with --json, else the lines."""
        if self.as_json:
            self.document(document)
        else:
            for text in lines:
                self.line(text)

    def fields(self, document: Mapping[str, Any], shown: Mapping[str, Any] | None = None) -> None:
        """Print a result of a few values on stdout: the document with --json, else one line for each value.

        Args:
            document: The values by name, as --json prints them.
            shown: The values as people see them; None for those of `document`. A value of None gets no line.
        """
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
        """Write bytes and a newline to stdout, and flush them on a terminal, because other messages may follow."""
        with _TO_STDOUT:
            sys.stdout.buffer.write(data + b"\n")
            if self._on_terminal:
                sys.stdout.buffer.flush()

    def flush(self) -> None:
        """Write all buffered text to stdout. Raises OutputFailed, and BrokenPipeError for a closed pipe."""
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
        with suppress(OSError):  # the exit code tells the result, too
            print(line, file=sys.stderr, flush=True)


def _json_line(document: Mapping[str, Any]) -> str:
    return json.dumps(document, default=_json_value)

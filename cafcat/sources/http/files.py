"""Files at http:// and https:// URLs. Reading fails if the file has changed since `HttpFiles.look`.

The rules are those of RFC 9110. This module follows redirects and repeats requests itself, because urllib3 would
write whole URLs to the log, and a URL may contain a signature. Messages show a URL only as `shown_url` returns it.
"""

import logging
import re
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes, urljoin

from cafcat.errors import InvalidInput, SourceFailed
from cafcat.model import ProblemKind, SourceFile
from cafcat.sources.fetched import SMALL_BYTES, FetchedFile
from cafcat.sources.http.urls import parsed_url, url_name, url_root
from cafcat.sources.names import printable, shown_url
from cafcat.support.traffic import TRAFFIC

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse
    from urllib3.util import Url

__all__ = ["HttpFiles"]

BLOCK_BYTES: Final = 1 << 18
"""Largest block that is read at once, in bytes."""

CONNECT_SECONDS: Final = 10
"""Time limit for a connection to a server, in seconds."""
READ_SECONDS: Final = 60
"""How long a server may send nothing before the request fails, in seconds."""
ATTEMPTS: Final = 6
"""Most attempts of one request. A file fails, too, when its body broke off this often in a row without another
byte."""
FIRST_PAUSE_SECONDS: float = 0.2
"""Pause before the second attempt, in seconds. Each further pause is twice as long: 6 seconds in all."""
LONGEST_PAUSE_SECONDS: Final = 30
"""Longest pause in seconds, even if the server requests a longer one."""
MOST_REDIRECTS: Final = 10
"""Most redirects of one request."""
_CONNECTIONS: Final = 64
"""Most connections to one server: as many as requests are in flight."""
_DRAIN_BYTES: Final = 1 << 16
"""A rest of a body up to this size is read to its end, because that is cheaper than a new connection. In bytes."""

_HEADERS: Final = {"User-Agent": "cafcat", "Accept-Encoding": "identity"}
# Statuses of servers without HEAD, and of servers that refuse HEAD for a URL that is signed for GET only.
_GET_INSTEAD: Final = (400, 401, 403, 405, 501)
_GONE: Final = (404, 410)
_CHANGED: Final = (412, 416)

_STRONG_TAG: Final = re.compile(r'"([\x21\x23-\x7e\x80-\xff]{1,1024})"')  # RFC 9110, 8.8.3
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)")  # RFC 9110, 14.4


class _Broken(Exception):
    """The body of an answer ended too early: the connection broke, or the server sent too few bytes."""


class _Blocks:
    """The bytes of a file at an http(s) URL, in blocks. Each iteration requests them again."""

    def __init__(self, files: "HttpFiles", file: SourceFile) -> None:
        self._files = files
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        return self._files.blocks(self._file)


class HttpFiles:
    """Opens files whose locator is an http(s) URL. Safe to share between threads."""

    def __init__(self) -> None:
        import urllib3

        logging.getLogger("urllib3.connection").addFilter(_without_query)
        self._pool = urllib3.PoolManager(
            _CONNECTIONS,
            maxsize=_CONNECTIONS,
            block=True,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
        )

    def name_of(self, url: str) -> str:
        """Return the name of the file in the catalog: "host/path". Raises InvalidInput for other kinds of URLs."""
        return url_name(url)

    def shown(self, url: str) -> str:
        """Return the URL of a file for messages, without user, password, query and fragment."""
        return shown_url(url)

    def root_of(self, file: SourceFile) -> str:
        """Return the root of a file: the part of its URL, without the query, that its name does not repeat."""
        return url_root(file.locator, file.path)

    def look(self, file: SourceFile) -> SourceFile:
        """Request the headers of a file, and return the file with its size, time and strong entity tag.

        If the server sends a tag and no time, the time is 0. If it sends neither, the file cannot be compared. Its
        time is then the current time, which is never that of a file in the catalog.

        Raises:
            SourceFailed: The file cannot be read, or the server does not show its size.
        """
        with self._answered("HEAD", file) as answer:
            if answer.status not in _GET_INSTEAD and (
                answer.status != HTTPStatus.OK or _length(answer) is not None
            ):
                return _described(file, answer)
        with self._answered("GET", file) as answer:
            return _described(file, answer)

    def open(self, file: SourceFile) -> FetchedFile:
        """Open a file in the version that `look` found. A file of at most 1 MiB is read now, a larger one later.

        Raises:
            SourceFailed: The file has changed since `look`, has vanished, or cannot be read.
        """
        content = None
        if file.size_bytes <= SMALL_BYTES:
            with TRAFFIC.request(_traffic_url(file), received=file.size_bytes):  # until the whole body is here
                content = b"".join(self.blocks(file))
        # Other times were made up by `look` for comparing, and are not stored.
        is_known = file.modified_ns != 0 and _is_from_server(file.modified_ns)
        modified_ns = file.modified_ns if is_known else None
        return FetchedFile(file, content, _Blocks(self, file), modified_ns=modified_ns)

    def blocks(self, file: SourceFile) -> Iterator[bytes]:
        """Yield all bytes of a file in blocks of at most 256 KiB.

        If the connection breaks after some bytes, another request continues at the same byte. That needs an entity
        tag, and a server that supports ranges.

        Raises:
            SourceFailed: The file has changed since `look`, has vanished, or cannot be read to its end.
        """
        position, failures = 0, 0
        url = _traffic_url(file)
        while True:
            with self._answered("GET", file, _conditions(file, position)) as answer:
                _check_same(file, answer, position)
                resumable = file.etag is not None and answer.headers.get("Accept-Ranges") == "bytes"
                try:
                    for block in _body(file, answer, file.size_bytes - position):
                        position, failures = position + len(block), 0
                        TRAFFIC.received(url, len(block))
                        yield block
                except _Broken as error:
                    failures += 1
                    if failures == ATTEMPTS or (position and not resumable):
                        raise _broken(file, position, resumable=resumable) from error.__cause__
                else:
                    return

    @contextmanager
    def _answered(
        self, method: str, file: SourceFile, headers: dict[str, str] | None = None
    ) -> Iterator["BaseHTTPResponse"]:
        """Send a request, and provide the answer with an unread body, whatever its status.

        Raises SourceFailed if no attempt got an answer.
        """
        answer = self._send(method, file, headers or {})
        try:
            yield answer
        finally:
            _close(answer)

    def _send(self, method: str, file: SourceFile, headers: dict[str, str]) -> "BaseHTTPResponse":
        from urllib3.exceptions import HTTPError, LocationValueError, SSLError

        pause = FIRST_PAUSE_SECONDS
        for attempt in range(1, ATTEMPTS + 1):
            requested = 0.0
            try:
                with TRAFFIC.request(_traffic_url(file)):
                    answer = self._follow(method, file, headers)
                if attempt == ATTEMPTS or not _is_temporary(answer.status):
                    return answer
                requested = _requested_pause(answer)
                _close(answer)
            except HTTPError as error:
                if attempt == ATTEMPTS or isinstance(error, LocationValueError | SSLError):
                    raise _failed(file, ProblemKind.UNREADABLE, _in_words(error)) from error
            time.sleep(max(pause, requested))
            pause *= 2
        raise AssertionError("the last attempt returns or raises")

    def _follow(self, method: str, file: SourceFile, conditions: dict[str, str]) -> "BaseHTTPResponse":
        """Send a request, follow its redirects, and return the last answer with an unread body.

        Raises:
            SourceFailed: The server redirects too often, or to another kind of URL. Errors of urllib3 are raised
                unchanged.
        """
        url = parsed_url(file.locator)
        first, login = _origin(url), _login(url)
        for _ in range(MOST_REDIRECTS + 1):
            headers = _HEADERS | conditions | (login if _origin(url) == first else {})
            answer = self._pool.urlopen(
                method,
                url._replace(auth=None, fragment=None).url,
                redirect=False,
                headers=headers,
                retries=False,
                preload_content=False,
                decode_content=False,
            )
            location = answer.get_redirect_location()
            if not location:
                return answer
            _close(answer)
            url = _redirected(file, url, location)
        raise _failed(file, ProblemKind.UNREADABLE, f"the server redirects more than {MOST_REDIRECTS} times")


def _without_query(record: logging.LogRecord) -> bool:
    """Remove queries from a log record, and return True: the record is logged.

    urllib3 warns of malformed headers with the whole URL, whose query may hold a secret.
    """
    if isinstance(record.args, tuple):
        record.args = tuple(arg.partition("?")[0] if isinstance(arg, str) else arg for arg in record.args)
    return True


def _redirected(file: SourceFile, url: "Url", location: str) -> "Url":
    target = urljoin(url.url, location.encode("latin-1", "replace").decode(errors="surrogateescape"))
    try:
        return parsed_url(target)
    except InvalidInput as error:
        raise _failed(
            file, ProblemKind.UNREADABLE, f"the server redirects to another kind of URL: {error.message}"
        ) from error


def _traffic_url(file: SourceFile) -> str:
    """Return the URL of a file for the limits: without user, password and query."""
    return str(parsed_url(file.locator)._replace(auth=None, query=None, fragment=None).url)


def _origin(url: "Url") -> tuple[str | None, str | None, int | None]:
    return url.scheme, url.host, url.port


def _login(url: "Url") -> dict[str, str]:
    if not url.auth:
        return {}
    return {"Authorization": f"Basic {b64encode(unquote_to_bytes(url.auth)).decode()}"}


def _conditions(file: SourceFile, position: int) -> dict[str, str]:
    """Return the headers that request only this version of a file, from the byte `position` on.

    Without an entity tag, the result is empty: all bytes of the current version are requested.
    """
    if file.etag is None:
        return {}
    tag = f'"{file.etag}"'
    return {"If-Match": tag} | ({"Range": f"bytes={position}-", "If-Range": tag} if position else {})


def _described(file: SourceFile, answer: "BaseHTTPResponse") -> SourceFile:
    _check_whole(file, answer)
    size_bytes = _length(answer)
    if size_bytes is None:
        raise _failed(file, ProblemKind.UNREADABLE, "the server does not send the size of the file")
    modified_ns, etag = _modified_ns(answer), _strong_tag(answer)
    if modified_ns is None:
        modified_ns = 0 if etag else _now_ns()
    return file._replace(size_bytes=size_bytes, modified_ns=modified_ns, etag=etag)


def _check_same(file: SourceFile, answer: "BaseHTTPResponse", position: int) -> None:
    """Raise SourceFailed if the answer is not the file that `look` found, from the byte `position` on."""
    if position and answer.status == HTTPStatus.PARTIAL_CONTENT:
        _check_encoding(file, answer)
        found = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != position or found[2] not in ("*", str(file.size_bytes)):
            raise _changed(file)
    else:
        _check_whole(file, answer)
        if position or _length(answer) not in (None, file.size_bytes):
            raise _changed(file)
    tag, modified_ns = _strong_tag(answer), _modified_ns(answer)
    if tag is not None and file.etag is not None:
        same = tag == file.etag
    else:
        same = modified_ns in (None, file.modified_ns) or not _is_from_server(file.modified_ns)
    if not same:
        raise _changed(file)


def _check_whole(file: SourceFile, answer: "BaseHTTPResponse") -> None:
    if answer.status != HTTPStatus.OK:
        kind = ProblemKind.VANISHED if answer.status in _GONE else ProblemKind.UNREADABLE
        raise _changed(file) if answer.status in _CHANGED else _failed(file, kind, _status_in_words(answer.status))
    _check_encoding(file, answer)


def _check_encoding(file: SourceFile, answer: "BaseHTTPResponse") -> None:
    if answer.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        message = "the server sends the file compressed or encoded, although the request forbids that"
        raise _failed(file, ProblemKind.UNREADABLE, message)


def _body(file: SourceFile, answer: "BaseHTTPResponse", remaining: int) -> Iterator[bytes]:
    """Yield the body of a server's answer in blocks.

    Args:
        file: The requested file.
        answer: The answer.
        remaining: Expected size of the body in bytes.

    Raises:
        _Broken: The connection broke, or the body is shorter than expected.
        SourceFailed: The body is longer than expected, so the file has changed.
    """
    from urllib3.exceptions import HTTPError

    while True:
        try:
            block = answer.read(BLOCK_BYTES, decode_content=False)
        except HTTPError as error:
            raise _Broken from error
        if not block:
            break
        remaining -= len(block)
        if remaining < 0:
            raise _changed(file)
        yield block
    if remaining:
        raise _Broken


def _close(answer: "BaseHTTPResponse") -> None:
    """Close a server's answer. The connection is used again if at most 64 KiB of the answer's body are unread."""
    if answer.length_remaining is not None and answer.length_remaining <= _DRAIN_BYTES:
        answer.drain_conn()
    answer.close()
    answer.release_conn()


def _length(answer: "BaseHTTPResponse") -> int | None:
    text = answer.headers.get("Content-Length", "")
    return int(text) if _LENGTH.fullmatch(text) else None


def _strong_tag(answer: "BaseHTTPResponse") -> str | None:
    """Return the entity tag without quotes. A weak tag counts as none: it does not promise the same bytes."""
    match = _STRONG_TAG.fullmatch(answer.headers.get("ETag", "").strip())
    return match[1] if match else None


def _modified_ns(answer: "BaseHTTPResponse") -> int | None:
    """Return Last-Modified (RFC 9110, 5.6.7) in nanoseconds since 1970 UTC. None if it is missing or not valid."""
    try:
        when = parsedate_to_datetime(answer.headers.get("Last-Modified", ""))
    except ValueError:
        return None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()) * 1_000_000_000


def _now_ns() -> int:
    """Return the current time in nanoseconds, never a whole second: that distinguishes it from a server's time."""
    now = time.time_ns()
    return now + 1000 if _is_from_server(now // 1000 * 1000) else now


def _is_from_server(modified_ns: int) -> bool:
    """Return True for a time in whole seconds, as servers send it."""
    return modified_ns % 1_000_000_000 == 0


def _is_temporary(status: int) -> bool:
    return status == HTTPStatus.TOO_MANY_REQUESTS or (status >= 500 and status != HTTPStatus.NOT_IMPLEMENTED)


def _requested_pause(answer: "BaseHTTPResponse") -> float:
    """Return the pause that a server requests in Retry-After (RFC 9110, 10.2.3), in seconds.

    Returns:
        At most 30; 0 if the server requests no pause, or sends a date.
    """
    text = answer.headers.get("Retry-After", "")
    return min(int(text), LONGEST_PAUSE_SECONDS) if _LENGTH.fullmatch(text) else 0.0


def _status_in_words(status: int) -> str:
    try:
        return f"the server answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the server answered {status}"


def _in_words(error: Exception) -> str:
    """Return a description of an error, without the URL that urllib3 puts into its messages."""
    from urllib3 import exceptions as found

    if isinstance(error, found.NewConnectionError) and not isinstance(error, found.NameResolutionError):
        return f"no connection to the server: {getattr(error.__cause__, 'strerror', None) or 'refused'}"
    if isinstance(error, found.SSLError):
        return f"no secure connection to the server: {printable(str(error))}"
    words = {
        found.NameResolutionError: "the name of the server cannot be resolved",
        found.ConnectTimeoutError: f"no connection to the server within {CONNECT_SECONDS} seconds",
        found.ReadTimeoutError: f"the server sent nothing for {READ_SECONDS} seconds",
        found.LocationValueError: "no request can be sent to this URL",
    }
    known = (text for kind, text in words.items() if isinstance(error, kind))
    return next(known, "the connection to the server broke")


def _broken(file: SourceFile, position: int, *, resumable: bool) -> SourceFailed:
    message = f"the connection broke after {position:,} of {file.size_bytes:,} bytes"
    if position and not resumable:
        message += ", and the server cannot continue from there"
    return _failed(file, ProblemKind.UNREADABLE, message)


def _changed(file: SourceFile) -> SourceFailed:
    return _failed(file, ProblemKind.CHANGED, "changed since it was listed")


def _failed(file: SourceFile, kind: ProblemKind, message: str) -> SourceFailed:
    return SourceFailed(message, path=printable(file.path), problem=kind.value)

"""Judges the answers of `cafcat serve` to odd requests: no errors of the server, no bytes of other files."""

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from tests.fuzz.requests import FILES, HIDDEN, marker

__all__ = ["Judge", "Response", "Wrong", "responses"]

HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n((?:[!-9;-~]+:[^\r\n]*\r\n)*)\r\n")
FIRST_LINE = re.compile(rb"([A-Z]+) (?:http://[^/]*)?(/[^ ?#\r\n]*)[^ \r\n]* HTTP/1\.1\r\n")
RANGE = re.compile(rb"bytes (\d+)-(\d+)/(\d+)")


class Wrong(Exception):
    """An answer that the server must not give."""


class Response(NamedTuple):
    """One response of an answer. headers: by lower-case names. is_whole: False if the body ends early."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    is_whole: bool = True


def responses(answer: bytes) -> list[Response]:
    """Return the responses of all that a server sent on a connection. A response to HEAD has no body.

    Raises:
        Wrong: The bytes are not responses of HTTP.
    """
    found: list[Response] = []
    while answer:
        match = HEAD.match(answer)
        if match is None:
            raise Wrong(f"no response, but {answer[:200]!r}")
        pairs = (line.split(b":", 1) for line in match[2].splitlines())
        headers = {name.lower(): value.strip() for name, value in pairs}
        body, is_whole, answer = _body(int(match[1]), headers, answer[match.end() :])
        found.append(Response(int(match[1]), headers, body, is_whole))
    return found


def _body(status: int, headers: dict[bytes, bytes], rest: bytes) -> tuple[bytes, bool, bytes]:
    """Return the body, whether it is whole, and the bytes behind it."""
    if status < 200 or status == 304 or not rest or rest.startswith(b"HTTP/1.1 "):
        return b"", True, rest
    if b"content-length" in headers:
        size = int(headers[b"content-length"])
        return rest[:size], len(rest) >= size, rest[size:]
    if headers.get(b"transfer-encoding") != b"chunked":
        return rest, True, b""
    body = b""
    while match := re.match(rb"([0-9a-f]+)\r\n", rest):
        size, start = int(match[1], 16), match.end()
        body, rest = body + rest[start : start + size], rest[start + size + 2 :]
        if not size:
            return body, True, rest
    return body, False, b""


class Judge:
    """Judges the answers of one side of a server.

    Attributes:
        tags: paths of FILES by entity tag.
        is_s3: True for the S3 side, whose access key does not see HIDDEN.
        secrets: bytes that no answer may have, such as names of folders of the server.
    """

    def __init__(self, tags: dict[bytes, str], secrets: Iterable[bytes], *, is_s3: bool) -> None:
        self.tags = tags
        self.is_s3 = is_s3
        self.secrets = [*secrets, b"Traceback", b"root:x:0:0"]
        if is_s3:
            self.secrets += [b"<Key>file</Key>", b"<Name>secret</Name>", b"<Name>mine2</Name>"]

    def check(self, request: bytes, answer: bytes) -> list[int]:
        """Return the statuses of an answer.

        Raises:
            Wrong: The answer must not be given.
        """
        for secret in self.secrets:
            if secret in answer and secret not in request:
                raise Wrong(f"it reveals {secret!r}")
        found = responses(answer)
        for response in found:
            self._check_status(request, response)
            self._check_file(request, response)
        self._check_markers(request, answer)
        if found:
            self._check_first(request, found[0])
        return [response.status for response in found]

    def _check_status(self, request: bytes, response: Response) -> None:
        is_refused = b"<Code>NotImplemented</Code>" in response.body or not response.body
        if response.status >= 500 and not (self.is_s3 and response.status == 501 and is_refused):
            raise Wrong(f"status {response.status}: {response.body[:300]!r}")
        if response.status >= 400 and not self.is_s3 and response.body and b'{"error": {' not in response.body:
            raise Wrong(f"an error without its document: {response.body[:300]!r}")

    def _check_file(self, request: bytes, response: Response) -> None:
        """Compare the body with the file that the entity tag names."""
        path = self.tags.get(response.headers.get(b"etag", b""))
        is_multipart = response.headers.get(b"content-type", b"").startswith(b"multipart/byteranges")
        if path is None or response.status not in (200, 206) or is_multipart or not response.body:
            return
        expected, place = FILES[path], RANGE.fullmatch(response.headers.get(b"content-range", b""))
        if (place is None) == (response.status == 206) or (place and int(place[3]) != len(expected)):
            raise Wrong(f"the range of {path} is {place and place[0]!r}")
        expected = expected if place is None else expected[int(place[1]) : int(place[2]) + 1]
        if response.body != expected[: len(response.body)] or (response.is_whole and response.body != expected):
            raise Wrong(f"other bytes than those of {path}: {response.body[:200]!r}")

    def _check_markers(self, request: bytes, answer: bytes) -> None:
        """Check that each file of an answer is named in the request, and is no hidden one."""
        named = unquote_to_bytes(request)
        for path in FILES:
            if marker(path) in answer:
                key = path.split("/", 1)[1] if self.is_s3 else path
                if key.encode() not in named and path not in _escaped(named):
                    raise Wrong(f"bytes of {path}, which the request does not name")
                if self.is_s3 and path.startswith(HIDDEN):
                    raise Wrong(f"bytes of {path}, which the key cannot see")

    def _check_first(self, request: bytes, response: Response) -> None:
        """If the first line of the request is whole, the first response has the file of this path, or no file."""
        line, path = FIRST_LINE.match(request), self.tags.get(response.headers.get(b"etag", b""))
        if line is None or path is None or response.status not in (200, 206, 304):
            return
        expected = ("/" if self.is_s3 else "/files/") + path
        if unquote_to_bytes(line[2]) != expected.encode():
            raise Wrong(f"the file {path} for {line[2]!r}")


def _escaped(named: bytes) -> str:
    """Return a request whose escapes of JSON are replaced, as far as they are valid."""
    text = named.decode("utf-8", "replace")
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text).replace("\\n", "\n")

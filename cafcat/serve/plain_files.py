"""Plain requests of the HTTP side: GET and HEAD of a whole file, without query, conditions and range."""

from collections.abc import Sequence
from typing import Final

from cafcat.model import Location
from cafcat.serve.failures import BadRequest
from cafcat.serve.files import PREFIX
from cafcat.serve.names import name_of
from cafcat.serve.representation import describing_headers, type_of
from cafcat.serve.straight import WITH_BODY, Response

__all__ = ["PlainFiles"]

_NOT_PLAIN: Final = WITH_BODY | {
    b"if-match",
    b"if-none-match",
    b"if-modified-since",
    b"if-unmodified-since",
    b"if-range",
    b"range",
    b"cafcat-redirect",
}


class _PlainFile:
    """A request for a whole file."""

    __slots__ = ("method", "name", "url_path")

    def __init__(self, method: str, name: str) -> None:
        self.method = method
        self.name = name
        self.url_path = f"/files/{name}"

    def response(self, location: Location, data: bytes | None) -> Response | None:
        if self.method == "HEAD":
            data = b""
        elif data is None:
            return None
        headers = describing_headers(location)
        headers.append((b"content-type", type_of(location.path)))
        headers.append((b"content-length", b"%d" % location.size_bytes))
        return 200, b"".join([b"%b: %b\r\n" % header for header in headers]), data


class PlainFiles:
    """Recognizes the plain requests of the HTTP side."""

    def __init__(self, *, is_open: bool = True) -> None:
        """Create the object.

        Args:
            is_open: False if no file is served without a login, so that no request is plain.
        """
        self._is_open = is_open

    def request(
        self, method: bytes, url: bytes, headers: Sequence[tuple[bytes, bytes]], _: float
    ) -> _PlainFile | None:
        """Return the request if it is plain, as `PlainRequests.request` does."""
        if not self._is_open or method not in (b"GET", b"HEAD") or not url.startswith(PREFIX):
            return None
        if b"?" in url or b"#" in url or url.endswith(b"/"):
            return None
        if not _NOT_PLAIN.isdisjoint([name for name, _value in headers]):
            return None
        try:
            return _PlainFile("HEAD" if method == b"HEAD" else "GET", name_of(url[len(PREFIX) :]))
        except BadRequest:
            return None

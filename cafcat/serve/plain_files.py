"""Plain requests of the HTTP side: GET and HEAD of a whole file, without query, conditions and range."""

from collections.abc import Sequence
from typing import Final, NamedTuple

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


class _PlainFile(NamedTuple):
    """A request for a whole file."""

    method: str
    name: str

    @property
    def url_path(self) -> str:
        return "/files/" + self.name

    def response(self, location: Location, data: bytes | None) -> Response | None:
        if self.method == "HEAD":
            data = b""
        elif data is None:
            return None
        lines = b"".join([b"%b: %b\r\n" % header for header in describing_headers(location)])
        kind, size_bytes = type_of(location.path), location.size_bytes
        lines += b"content-type: %b\r\ncontent-length: %d\r\n" % (kind, size_bytes)
        return Response(200, lines, data)


class PlainFiles:
    """Tells plain requests from the other requests of the HTTP side."""

    def request(
        self, method: bytes, url: bytes, headers: Sequence[tuple[bytes, bytes]], _: float
    ) -> _PlainFile | None:
        """Return the request if it is plain, as `PlainRequests.request` does."""
        if method not in (b"GET", b"HEAD") or not url.startswith(PREFIX):
            return None
        if b"?" in url or b"#" in url or url.endswith(b"/"):
            return None
        for name, _value in headers:
            if name in _NOT_PLAIN:
                return None
        try:
            return _PlainFile(method.decode(), name_of(url[len(PREFIX) :]))
        except BadRequest:
            return None

"""Plain requests of the S3 side: GetObject and HeadObject without unusual parameters."""

from collections.abc import Sequence
from urllib.parse import unquote

from cafcat.model import Location
from cafcat.serve.s3.answer import RequestIds, with_id
from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.request import S3Request
from cafcat.serve.s3.service import S3Service
from cafcat.serve.straight import WITH_BODY, Response

__all__ = ["PlainObjects"]


class _PlainObject:
    """A request for one object, whose client may read it."""

    __slots__ = ("_ids", "_request", "_service", "method", "name")

    def __init__(self, request: S3Request, name: str, service: S3Service, ids: RequestIds) -> None:
        self.method = request.method
        self.name = name
        self._request = request
        self._service = service
        self._ids = ids

    @property
    def url_path(self) -> str:
        return unquote(self._request.raw_path.decode("ascii", "replace"))

    def response(self, location: Location, data: bytes | None) -> Response | None:
        if data is None and self.method != "HEAD":
            return None
        try:
            answer = self._service.plain_answer(self._request, location, data)
        except S3Error:
            return None
        headers = with_id(answer.headers, self._ids.new())
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return answer.status, lines.encode("latin-1", "replace"), answer.body


class PlainObjects:
    """Recognizes the plain requests of the S3 side."""

    def __init__(self, service: S3Service) -> None:
        """Create an object.

        Args:
            service: Checks the permission of clients, and answers the requests.
        """
        self._service = service
        self._ids = RequestIds()

    def request(
        self, method: bytes, url: bytes, headers: Sequence[tuple[bytes, bytes]], now: float
    ) -> _PlainObject | None:
        """Return the request if it is plain, as `PlainRequests.request` does."""
        if not url.startswith(b"/") or b"#" in url:
            return None
        if not WITH_BODY.isdisjoint([name for name, _ in headers]):
            return None
        path, _, query = url.partition(b"?")
        try:
            request = S3Request(method.decode("ascii"), path, query, headers, now)
            name = self._service.plain_path(request)
        except S3Error:
            return None
        return None if name is None else _PlainObject(request, name, self._service, self._ids)

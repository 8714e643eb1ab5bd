"""Responses about errors: a status, and a JSON document without details of the stores."""

import json
from typing import Final

from cafcat.errors import (
    AccessDenied,
    CafcatError,
    CatalogOutdated,
    Conflict,
    Corrupt,
    InvalidInput,
    Locked,
    NotFound,
    NotInstalled,
    Unavailable,
    Unsupported,
)
from cafcat.serve.asgi import Headers, Scope, Send, exchange_of, respond

__all__ = ["BadRequest", "record", "respond_error", "status_of"]

_STATUSES: Final[tuple[tuple[type[CafcatError], int, str | None], ...]] = (
    (NotFound, 404, None),
    (InvalidInput, 400, None),
    (Corrupt, 500, "the file is damaged"),
    (NotInstalled, 501, "this server cannot decode the file"),
    (Unsupported, 501, "this server cannot decode the file"),
    (Unavailable, 503, "the catalog or the store does not answer now"),
    (AccessDenied, 503, "the store does not give the file to this server"),
    (Conflict, 503, "the archive of the file was replaced during the request"),
    (Locked, 503, "the catalog is locked"),
    (CatalogOutdated, 503, "the catalog has another schema than this server"),
)
"""Status and public message by class of error. The message of an error may name folders, hosts and buckets, so it
goes to the log; None means that the error's own message is public."""
_RETRY_SECONDS: Final = b"5"


class BadRequest(CafcatError):
    """A request that is refused before the catalog is asked.

    Attributes:
        status: Status of the response.
        headers: Headers that belong to the status, such as Allow.
    """

    kind = "invalid_input"

    def __init__(self, status: int, message: str, headers: Headers | None = None) -> None:
        """Create an error. The arguments become the attributes of the same names."""
        super().__init__(message)
        self.status = status
        self.headers = headers or []


def status_of(error: CafcatError) -> tuple[int, str]:
    """Return the status for an error, and the message that clients get."""
    if isinstance(error, BadRequest):
        return error.status, error.message
    for kind, status, message in _STATUSES:
        if isinstance(error, kind):
            return status, error.message if message is None else message
    return 500, "the request failed"


def record(scope: Scope, error: BaseException) -> None:
    """Enter an error into the log's record of a request. An error that is not cafcat's is a bug."""
    exchange = exchange_of(scope)
    is_known = isinstance(error, CafcatError)
    exchange.error = str(error) if is_known else f"unexpected {type(error).__name__}: {error}"
    exchange.error_kind = error.kind if isinstance(error, CafcatError) else "bug"


async def respond_error(scope: Scope, send: Send, error: CafcatError, path: str | None = None) -> None:
    """Answer a request with the status of an error. Errors of the server's side go to the log.

    Args:
        scope: The request.
        send: Sends the response.
        error: The error.
        path: Path of the file that failed, if the client named several.
    """
    status, message = status_of(error)
    if status >= 500:
        record(scope, error)
    named = {} if path is None else {"path": path}
    body = json.dumps({"error": {"kind": error.kind, "message": message, **named}}).encode() + b"\n"
    headers: Headers = [
        (b"content-type", b"application/json"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-length", b"%d" % len(body)),
    ]
    if isinstance(error, BadRequest):
        headers += error.headers
    if status == 503:
        headers.append((b"retry-after", _RETRY_SECONDS))
    await respond(send, status, headers, body)


async def respond_bug(send: Send) -> None:
    """Answer a request that met a bug of the server. The log has its text."""
    body = b'{"error": {"kind": "failure", "message": "the request failed; the log of the server says why"}}\n'
    await respond(send, 500, [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))], body)

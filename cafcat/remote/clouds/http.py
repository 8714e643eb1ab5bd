"""Sends requests to Google Cloud Storage and Azure Blob Storage, and repeats those that fail for a moment."""

import json
import os
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from cafcat.errors import CafcatError, StoreFailed
from cafcat.remote.connection import ATTEMPTS, CONNECT_SECONDS, READ_SECONDS
from cafcat.remote.errors import CREATE_BUCKET, answered, unreachable
from cafcat.support.forking import keep_open, renew_after_fork
from cafcat.support.traffic import TRAFFIC

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

__all__ = ["CloudHttp", "Request", "Signer"]

_AGAIN: Final = frozenset((408, 429, 500, 502, 503, 504))
"""Statuses after which the same request may succeed (Google Cloud Storage, "Retry strategy"; Azure, "Blob Storage
error codes")."""
_CONNECTIONS: Final = 64
"""Largest number of connections that are kept open."""
_CODE: Final = re.compile(rb"<Code>(\w+)</Code>")
_MESSAGE: Final = re.compile(rb"<Message>([^<\n]*)")


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a server.

    Attributes:
        doing: The operation, for messages: "read", "write", "list", ...
        where: URL of the object or bucket, for messages.
        method: Method of HTTP.
        url: URL without query.
        query: Names and values of the query, not encoded.
        headers: Headers without credentials.
        body: The body; None if there is none.
        accepts: Statuses from 300 on that are no errors.
        streams: True if the caller reads the body of the answer.
    """

    doing: str
    where: str
    method: str
    url: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    accepts: tuple[int, ...] = ()
    streams: bool = False


class Signer(Protocol):
    """Adds credentials to requests."""

    def signed(self, request: Request) -> tuple[str, Mapping[str, str]]:
        """Return the whole URL of a request, and its headers with credentials.

        Raises:
            AccessDenied: There are no credentials.
            NotInstalled: A package that finds credentials is not installed.
        """


class CloudHttp:
    """Sends signed requests. Threads may share it. A forked process opens connections of its own."""

    def __init__(self, signer: Signer, server_url: str) -> None:
        self._signer = signer
        self._server_url = server_url
        self._pool: PoolManager | None = None
        renew_after_fork(self)

    def send(self, request: Request) -> "BaseHTTPResponse":
        """Send a request, up to six times, and return the answer.

        Raises:
            NotFound, Conflict, AccessDenied, StoreFailed: The server refuses or fails
                (`cafcat.remote.errors.answered`).
        """
        sent = len(request.body) if isinstance(request.body, bytes | bytearray | memoryview) else 0
        with TRAFFIC.request(request.where, sent=sent):
            return self._send(request)

    def _send(self, request: Request) -> "BaseHTTPResponse":
        failure: CafcatError = StoreFailed(f"cannot {request.doing} {request.where}")
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(min(8.0, 0.1 * 2**attempt) * random.uniform(0.5, 1))  # noqa: S311 - spreads requests
            answer = self._send_once(request)
            if isinstance(answer, CafcatError):
                failure = answer
                continue
            if answer.status < 300 or answer.status in request.accepts:
                return answer
            failure = _failure(answer, request)
            if answer.status not in _AGAIN:
                raise failure
        raise failure

    def _send_once(self, request: Request) -> "BaseHTTPResponse | CafcatError":
        from urllib3.exceptions import HTTPError

        url, headers = self._signer.signed(request)
        try:
            return self._connections().request(
                request.method,
                url,
                body=request.body,
                headers=headers,
                preload_content=not request.streams,
                decode_content=False,
                retries=False,
                redirect=False,
            )
        except HTTPError as error:
            # The texts of urllib3's errors may contain the URL, and a URL may contain a signature.
            cause = next((arg for arg in reversed(error.args) if isinstance(arg, Exception)), error)
            reason = str(cause).partition("url: ")[0].rpartition(": ")[2] or type(error).__name__
            return unreachable(reason, request.doing, request.where)

    def _connections(self) -> "PoolManager":
        if self._pool is None:
            self._pool = _new_pool(self._server_url)
        return self._pool

    def after_fork(self) -> None:
        """Forget the connections of the parent in a forked process. The next request opens new ones."""
        keep_open(self._pool)
        self._pool = None


def _new_pool(server_url: str) -> "PoolManager":
    """Return a pool of connections, through the proxy that the environment names for this server, if any."""
    from urllib.request import getproxies, proxy_bypass

    from urllib3 import PoolManager, ProxyManager, Timeout

    options: dict[str, Any] = {
        "maxsize": _CONNECTIONS,
        "timeout": Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
        "ca_certs": os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE"),
    }
    place = urlsplit(server_url)
    proxy = getproxies().get(place.scheme)
    if proxy is None or proxy_bypass(place.netloc):
        return PoolManager(**options)
    return ProxyManager(proxy if "://" in proxy else f"http://{proxy}", **options)


def _failure(answer: "BaseHTTPResponse", request: Request) -> CafcatError:
    """Return the error for an answer: the code and message in its XML or JSON document, or only its status."""
    data = answer.read() if request.streams else answer.data
    answer.release_conn()
    code = answer.headers.get("x-ms-error-code") or _text(_CODE.search(data)) or str(answer.status)
    message = _text(_MESSAGE.search(data)) or _json_message(data)
    failure = answered(code, message, request.doing, request.where)
    # A list, and the beginning of an upload of Google (POST), need only the bucket.
    if answer.status == 404 and (request.doing == "list" or request.method == "POST"):
        failure.hint = CREATE_BUCKET
    return failure


def _text(match: "re.Match[bytes] | None") -> str:
    return match[1].decode("utf-8", "replace") if match else ""


def _json_message(data: bytes) -> str:
    try:
        error = json.loads(data)["error"]
        return str(error["message"])
    except (ValueError, KeyError, TypeError):
        return ""

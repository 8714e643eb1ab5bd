"""Types of ASGI, and the record of one request that the log and the metrics read."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["App", "Exchange", "Headers", "Message", "Receive", "Scope", "Send", "exchange_of", "respond"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_KEY: Final = "cafcat.exchange"


@dataclass(slots=True)
class Exchange:
    """What became of one request.

    Attributes:
        status: Status of the response; 0 if there was none.
        size_bytes: Number of bytes of the body that were sent.
        is_complete: True if the whole response was sent.
        error: Why the response failed or broke off, for the log; None if it did not.
        error_kind: `CafcatError.kind` of that error.
    """

    status: int = 0
    size_bytes: int = 0
    is_complete: bool = False
    error: str | None = None
    error_kind: str | None = None


def exchange_of(scope: Scope) -> Exchange:
    """Return the record of a request, which is made at the first call."""
    exchange = scope.get(_KEY)
    if exchange is None:
        exchange = scope[_KEY] = Exchange()
    return exchange


async def respond(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> None:
    """Send a complete response.

    Args:
        send: The function of ASGI.
        status: Status of HTTP.
        headers: All headers.
        body: The body; the server leaves it out of responses to HEAD.
    """
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

"""Contents of files for visitors of the console: as below /files/, but only what the visitor may see.

Nothing that is archived runs as a page of the console: browsers get every content with a policy that allows no
scripts, no forms and no requests, and treat it as that of another site.
"""

from typing import Final

from cafcat.errors import NotFound
from cafcat.serve.asgi import App, Message, Receive, Scope, Send
from cafcat.serve.files import PREFIX
from cafcat.serve.names import quoted

__all__ = ["ContentOf"]

_POLICY: Final = b"default-src 'none'; style-src 'unsafe-inline'; sandbox"
_ADDED: Final = (
    (b"content-security-policy", _POLICY),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"private, no-cache"),
)


class ContentOf:
    """Answers a request with the content of one file, as an ASGI application."""

    def __init__(self, path: str, files: App) -> None:
        """Create the application.

        Args:
            path: Path of the file, which the visitor may see.
            files: Answers requests below /files/.

        Raises:
            NotFound: The path is that of a folder.
        """
        if path.endswith("/"):
            raise NotFound("the catalog has no such file")
        self._raw_path = PREFIX + quoted(path).encode()
        self._files = files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request: ranges and conditions are as below /files/."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message["headers"] if name != b"content-security-policy"]
                message = {**message, "headers": [*kept, *_ADDED]}
            await send(message)

        await self._files({**scope, "raw_path": self._raw_path}, receive, sent)

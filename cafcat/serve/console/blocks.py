"""An answer whose blocks are read from the catalog while they are sent."""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor

from cafcat.errors import CafcatError
from cafcat.serve.asgi import Receive, Scope, Send
from cafcat.serve.failures import record
from cafcat.serve.sending import ClientLeft, close_blocks, next_block, send_blocks

__all__ = ["Blocks"]


class Blocks:
    """Sends blocks, as an ASGI application. An error before the first one is raised, so that it gets a page."""

    def __init__(
        self, blocks: Iterator[bytes], headers: Mapping[str, str], pool: Executor, slots: asyncio.Semaphore
    ) -> None:
        """Create the answer.

        Args:
            blocks: The blocks. They are closed at the end.
            headers: Headers of the response.
            pool: Runs the iterator.
            slots: Limits the answers that are sent at the same time. Others wait.
        """
        self._blocks = blocks
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._pool = pool
        self._slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request. If a block cannot be read, the response ends before its end."""
        async with self._slots:
            try:
                await self._send(scope, receive, send)
            finally:
                await close_blocks(self._blocks, self._pool)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = await next_block(self._blocks, self._pool) or b""
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": first, "more_body": True})
        try:
            await send_blocks(self._blocks, scope, receive, send, self._pool)
        except ClientLeft:
            return
        except CafcatError as error:
            record(scope, error)
            return
        await send({"type": "http.response.body", "body": b""})

"""Sends blocks that are read in threads, at the speed of the client."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

from cafcat.serve.asgi import Receive, Send

__all__ = ["ClientLeft", "close_blocks", "next_block", "send_blocks"]


class ClientLeft(Exception):
    """The client closed the connection before the response was complete."""


async def client_left(receive: Receive) -> None:
    """Return when the client has closed the connection. The body of the request must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def next_block(blocks: Iterator[bytes], pool: Executor) -> bytes | None:
    """Return the next block of an iterator that runs in a thread; None at its end."""
    return await asyncio.get_running_loop().run_in_executor(pool, next, blocks, None)


async def send_blocks(blocks: Iterator[bytes], receive: Receive, send: Send, pool: Executor) -> None:
    """Send blocks as parts of the body. The next one is read when the client has taken nearly all of the last one.

    The caller sends the end of the body, and closes the iterator.

    Args:
        blocks: The blocks. Errors of the iteration are raised.
        receive: Reports that the client has left.
        send: Sends a block, and waits while the client is slow.
        pool: Runs the iterator.

    Raises:
        ClientLeft: The client closed the connection.
    """
    left = asyncio.ensure_future(client_left(receive))
    try:
        while (block := await next_block(blocks, pool)) is not None:
            if left.done():
                raise ClientLeft
            await send({"type": "http.response.body", "body": block, "more_body": True})
    finally:
        left.cancel()
        with suppress(asyncio.CancelledError):
            await left


async def close_blocks(blocks: Any, pool: Executor) -> None:
    """Close an iterator in a thread, because that may wait for requests in flight."""
    close = getattr(blocks, "close", None)
    if close is not None:
        await asyncio.get_running_loop().run_in_executor(pool, close)

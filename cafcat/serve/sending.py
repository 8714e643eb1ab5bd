"""Sends blocks that are read in threads, at the speed of the client."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Final

from cafcat.serve.asgi import Receive, Scope, Send
from cafcat.serve.direct import DirectSender, direct_sender

__all__ = ["ClientLeft", "close_blocks", "next_block", "send_blocks"]

_PART_BYTES: Final = 48 << 10
"""A client that takes fewer bytes than these before the limit of time is cut off."""


class ClientLeft(Exception):
    """The client closed the connection before the response was complete."""


async def client_left(receive: Receive) -> None:
    """Return when the client has closed the connection. The body of the request must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def next_block(blocks: Iterator[bytes], pool: Executor) -> bytes | None:
    """Return the next block of an iterator that runs in a thread; None at its end."""
    return await asyncio.get_running_loop().run_in_executor(pool, next, blocks, None)


async def send_blocks(blocks: Iterator[bytes], scope: Scope, receive: Receive, send: Send, pool: Executor) -> None:
    """Send blocks as parts of the body. The next one is read when the client has taken nearly all of the last one.

    The caller sends the end of the body, and closes the iterator.

    Args:
        blocks: The blocks. Errors of the iteration are raised.
        scope: The request.
        receive: Reports that the client has left.
        send: Sends a block, and waits while the client is slow.
        pool: Runs the iterator.

    Raises:
        ClientLeft: The client closed the connection.
    """
    left = asyncio.ensure_future(client_left(receive))
    sender = None
    try:
        sender = direct_sender(scope)
        if sender is None:
            await _send_each(blocks, left, send, pool)
        else:
            await _send_directly(blocks, sender, left, send, pool)
    finally:
        if sender is not None:
            sender.close()
        left.cancel()
        with suppress(asyncio.CancelledError):
            await left


async def _send_each(blocks: Iterator[bytes], left: "asyncio.Future[None]", send: Send, pool: Executor) -> None:
    while (block := await next_block(blocks, pool)) is not None:
        if left.done():
            raise ClientLeft
        await send({"type": "http.response.body", "body": block, "more_body": True})


async def _send_directly(
    blocks: Iterator[bytes], sender: DirectSender, left: "asyncio.Future[None]", send: Send, pool: Executor
) -> None:
    """Send blocks from a thread. The event loop sends the bytes that the socket does not take at once."""
    await sender.drain()
    while (rest := await asyncio.get_running_loop().run_in_executor(pool, sender.send, blocks)) is not None:
        if left.done():
            raise ClientLeft
        sender.count()
        for start in range(0, len(rest), _PART_BYTES):
            body = bytes(rest[start : start + _PART_BYTES])
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await sender.drain()
    sender.count()


async def close_blocks(blocks: Any, pool: Executor) -> None:
    """Close an iterator in a thread, because that may wait for requests in flight."""
    await asyncio.get_running_loop().run_in_executor(pool, _close, blocks)


def _close(blocks: Any) -> None:
    close = getattr(blocks, "close", None)
    if close is not None:
        with suppress(ValueError):  # another thread is reading a block of a request that was cancelled
            close()

"""Sends large bodies from a thread straight to the socket of a connection.

A block is read, added to the checksum and sent while the cache of the processor still has it, and the event loop is
not entered for each block. When the client is slower than the reading, the event loop sends the rest of a block and
waits.
"""

import os
from collections.abc import Iterator
from threading import Lock
from typing import Final, Protocol

from cafcat.serve.asgi import Scope

__all__ = ["CONNECTION", "DirectConnection", "DirectSender", "direct_sender"]

CONNECTION: Final = "cafcat.connection"
"""Key in the scope of a request: its DirectConnection. Servers other than `cafcat serve` have none."""
_TURN_BYTES: Final = 4 << 20
"""How much a thread sends before it serves other clients."""


class DirectConnection(Protocol):
    """A connection to whose socket a thread can write the body of a response."""

    def begin_direct(self) -> int | None:
        """Return a duplicate of the descriptor of the socket; None if the body has to be encrypted or framed.

        From now on, `drain` waits for all bytes that the event loop has to send, until `end_direct`.
        """

    async def drain(self) -> None:
        """Wait until the event loop has sent all bytes."""

    def count_direct(self, sent_bytes: int) -> None:
        """Count further bytes of the body, which a thread has sent."""

    def end_direct(self) -> None:
        """Let the event loop keep some bytes again."""


class DirectSender:
    """Sends one body."""

    def __init__(self, connection: DirectConnection, descriptor: int) -> None:
        """Create a sender.

        Args:
            connection: The connection.
            descriptor: The descriptor that `begin_direct` returned. The sender closes it: until then no other
                connection can get this number, and so the bytes.
        """
        self._connection = connection
        self._descriptor = descriptor
        self._lock = Lock()
        self._sent_bytes = self._counted_bytes = 0

    def send(self, blocks: Iterator[bytes]) -> bytes | memoryview | None:
        """Send blocks until the client is slow, or some MiB are sent. This runs in a thread.

        Returns:
            The rest of the last block, which the socket did not take, perhaps empty; None at the end of the blocks.
        """
        until = self._sent_bytes + _TURN_BYTES
        while self._sent_bytes < until:
            block = next(blocks, None)
            if block is None:
                return None
            rest = self._send_block(block)
            if rest:
                return rest
        return b""

    def _send_block(self, block: bytes) -> bytes | memoryview:
        rest: bytes | memoryview = block
        while rest:
            try:
                count = self._write(rest)
            except OSError:  # the client is slow or has left, or the request was cancelled
                break
            self._sent_bytes += count
            rest = memoryview(block)[len(block) - len(rest) + count :]
        return rest

    def _write(self, data: bytes | memoryview) -> int:
        with self._lock:
            return os.write(self._descriptor, data)

    def count(self) -> None:
        """Add the bytes that were sent since the last call to those of the response."""
        self._connection.count_direct(self._sent_bytes - self._counted_bytes)
        self._counted_bytes = self._sent_bytes

    async def drain(self) -> None:
        """Wait until the event loop has sent the head of the response, or the rest that `send` returned."""
        await self._connection.drain()

    def close(self) -> None:
        """Count the last bytes, and close the descriptor, which a thread of a cancelled request may still use."""
        self.count()
        self._connection.end_direct()
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


def direct_sender(scope: Scope) -> DirectSender | None:
    """Return a sender for the body of a response; None if a thread cannot send it. Call `drain` before `send`.

    Args:
        scope: The request. The head of the response must have been sent.
    """
    connection: DirectConnection | None = scope.get(CONNECTION)
    descriptor = None if connection is None else connection.begin_direct()
    return None if connection is None or descriptor is None else DirectSender(connection, descriptor)

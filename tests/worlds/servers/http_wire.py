"""HTTP/1.1 messages as they are on the wire, for programs that forward them."""

import fcntl
import select
import socket
import struct
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.worlds.waiting import PATIENCE_SECONDS

BLOCK_BYTES = 64 * 1024
HOP_BY_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"expect"}


@dataclass
class Head:
    """The first line of a message and its headers, as they were received."""

    start: bytes
    headers: list[bytes]

    def get(self, name: bytes) -> bytes | None:
        for line in self.headers:
            found, _, value = line.partition(b":")
            if found.strip().lower() == name:
                return value.strip()
        return None

    @property
    def status(self) -> int:
        return int(self.start.split()[1])

    @property
    def length(self) -> int | None:
        """Return the size of the body in bytes; None if the message does not have a Content-Length."""
        value = self.get(b"content-length")
        return None if value is None else int(value)

    @property
    def closes(self) -> bool:
        return (self.get(b"connection") or b"").lower() == b"close"

    @property
    def is_chunked(self) -> bool:
        return (self.get(b"transfer-encoding") or b"").lower() == b"chunked"

    def encoded(self, *further: bytes) -> bytes:
        """Return the head for the next hop, without the headers that concern only one connection."""
        kept = [line for line in self.headers if line.partition(b":")[0].strip().lower() not in HOP_BY_HOP]
        return b"\r\n".join([self.start, *kept, *further, b"", b""])


class Wire:
    """One end of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._reader = sock.makefile("rb")
        self.send = sock.sendall

    def head(self) -> Head | None:
        """Return the head of the next message; None if the other side has closed."""
        start = self._reader.readline().rstrip(b"\r\n")
        if not start:
            return None
        lines = iter(lambda: self._reader.readline().rstrip(b"\r\n"), b"")
        return Head(start, list(lines))

    def body(self, head: Head, until_closed: bool = False) -> Iterator[bytes]:
        """Yield the body in blocks, with chunk headers if it is chunked. Raises EOFError if it ends early."""
        if head.is_chunked:
            return self._chunks()
        if head.length is None and until_closed:
            return iter(lambda: self._reader.read1(BLOCK_BYTES), b"")
        return self._exactly(head.length or 0)

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            block = self._reader.read1(min(size, BLOCK_BYTES))
            if not block:
                raise EOFError
            size -= len(block)
            yield block

    def _chunks(self) -> Iterator[bytes]:
        size = -1
        while size != 0:
            line = self._reader.readline()
            if not line:
                raise EOFError
            size = int(line.split(b";")[0], 16)
            yield line
            yield from self._exactly(size)
            if size:
                yield self._reader.readline()
        trailer = b"-"
        while trailer.strip():
            trailer = self._reader.readline()
            yield trailer

    @property
    def is_stale(self) -> bool:
        """Return True if the other side closed the connection, or sent data, while no request was pending."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def reset(self) -> None:
        """Close the connection as if the network had failed: the other side sees a connection reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def wait_until_arrived(self) -> None:
        """Wait until the other side's kernel has received all data: a reset would discard the rest."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._bytes_on_their_way() and time.monotonic() < deadline:
            time.sleep(0.001)

    def _bytes_on_their_way(self) -> int:
        (size,) = struct.unpack("i", fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)))
        return int(size)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


def final_head(upstream: Wire) -> Head:
    """Return the head of the server's final answer, without the informational ones (1xx) before it."""
    while (head := upstream.head()) is not None:
        if head.status >= 200:
            return head
    raise EOFError

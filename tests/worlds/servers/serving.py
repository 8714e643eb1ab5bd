"""Servers for tests that answer in a thread of their own."""

import socketserver
import threading
from typing import Self

__all__ = ["ServesWhileEntered"]


class ServesWhileEntered(socketserver.BaseServer):
    """A base class of servers that listen once they are made, and answer while they are entered.

    It must come before the class of the server among the bases. Leaving it closes the server.
    """

    def __enter__(self) -> Self:
        self._serving = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self._serving.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._serving.join()
        self.server_close()

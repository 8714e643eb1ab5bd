"""Servers of the tests that serve in a thread of their own."""

import socketserver
import threading
from typing import Self

__all__ = ["ServesWhileEntered"]


class ServesWhileEntered(socketserver.BaseServer):
    """Listens from when it is made, answers while it is entered, and is closed then. Comes before the class of the
    server among the bases."""

    def __enter__(self) -> Self:
        self._serving = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self._serving.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._serving.join()
        self.server_close()

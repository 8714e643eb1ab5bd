"""The doors of the server: the protocols that it speaks, each on a port of its own."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cafcat.serve.application import http_app
from cafcat.serve.asgi import App
from cafcat.serve.observing import Metrics
from cafcat.serve.options import ServeOptions
from cafcat.serve.s3 import s3_app
from cafcat.serve.serving import Serving

__all__ = ["Door", "doors"]


class Door(NamedTuple):
    """A protocol that the server speaks.

    Attributes:
        name: Its name in messages, log and metrics.
        port: Its port; 0 for a free one.
        make: Returns its ASGI application for one process, in the event loop of that process.
        has_files: True if the paths below /files/ are those of the catalog, so that plain GETs need no ASGI.
    """

    name: str
    port: int
    make: Callable[[Serving, Metrics], App]
    has_files: bool = False


def doors(options: ServeOptions) -> Sequence[Door]:
    """Return the doors that are to be opened.

    Args:
        options: How files are served.
    """
    found = []
    if options.port is not None:
        found.append(Door("http", options.port, http_app, has_files=True))
    if options.s3_port is not None:
        found.append(Door("s3", options.s3_port, _s3))
    return found


def _s3(serving: Serving, _: Metrics) -> App:
    app = s3_app(serving.repository, serving.options.s3, serving.finder)
    serving.call_at_end(app.close)
    return app

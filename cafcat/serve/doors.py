"""The doors of the server: the protocols that it speaks, each on a port of its own."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cafcat.serve.application import http_app
from cafcat.serve.asgi import App
from cafcat.serve.observing import Metrics
from cafcat.serve.options import ServeOptions
from cafcat.serve.plain_files import PlainFiles
from cafcat.serve.s3.app import S3App
from cafcat.serve.s3.plain_objects import PlainObjects
from cafcat.serve.s3.service import S3Service
from cafcat.serve.serving import Serving
from cafcat.serve.straight import PlainRequests

__all__ = ["Door", "doors"]

Answering = tuple[App, PlainRequests]
"""The ASGI application of a door, and the requests that it need not answer."""


class Door(NamedTuple):
    """A protocol that the server speaks.

    Attributes:
        name: Its name in messages, log and metrics.
        port: Its port; 0 for a free one.
        make: Returns what answers its requests in one process, in the event loop of that process.
    """

    name: str
    port: int
    make: Callable[[Serving, Metrics], Answering]


def doors(options: ServeOptions) -> Sequence[Door]:
    """Return the doors that are to be opened.

    Args:
        options: How files are served.
    """
    found = []
    if options.http:
        found.append(Door("http", options.port, _http))
    if options.s3_port is not None:
        found.append(Door("s3", options.s3_port, _s3))
    return found


def _http(serving: Serving, metrics: Metrics) -> Answering:
    return http_app(serving, metrics), PlainFiles(is_open=serving.options.files)


def _s3(serving: Serving, _: Metrics) -> Answering:
    service = S3Service(serving.repository, serving.options.s3)
    app = S3App(service)
    serving.call_at_end(app.close)
    return app, PlainObjects(service)

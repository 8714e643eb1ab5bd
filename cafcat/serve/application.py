"""The HTTP side: files by a raw ASGI application, the console and all other paths by Starlette."""

import json
from functools import cache
from importlib.resources import files as resources
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cafcat import __version__
from cafcat.errors import CafcatError, NotFound
from cafcat.packed_files import PackedFiles
from cafcat.serve.asgi import App, Receive, Scope, Send
from cafcat.serve.batches import Batches
from cafcat.serve.catalog_metrics import CatalogMetrics
from cafcat.serve.console.app import PREFIX as CONSOLE
from cafcat.serve.console.app import Console
from cafcat.serve.failures import BadRequest, record, respond_error
from cafcat.serve.files import PREFIX, Files
from cafcat.serve.observing import Metrics
from cafcat.serve.serving import Serving

__all__ = ["description", "http_app"]

_NO_FILE = "\x01"
"""A name that no file has, with which /healthz asks the catalog."""


def http_app(serving: Serving, metrics: Metrics) -> App:
    """Return the ASGI application of the HTTP side.

    Args:
        serving: Repository, threads and limits, shared by the requests of one process.
        metrics: Shown at /metrics.
    """
    options = serving.options
    files = Files(serving)
    batches = Batches(serving)
    others = _other_paths(serving, metrics)
    console: App = others
    if options.console:
        console = own = Console(PackedFiles(serving.repository.settings), options, files)
        serving.call_at_end(own.close)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope["raw_path"]
        if options.files and raw.startswith(PREFIX):
            await files(scope, receive, send)
        elif options.files and raw == b"/batch":
            await batches(scope, receive, send)
        elif raw.startswith(CONSOLE):
            await console(scope, receive, send)
        else:
            await others(scope, receive, send)

    return app


@cache
def description() -> dict[str, Any]:
    """Return the description of the HTTP side, in the form of OpenAPI 3.1: openapi.json beside this module."""
    document: dict[str, Any] = json.loads(resources(__package__).joinpath("openapi.json").read_text("utf-8"))
    document["info"]["version"] = __version__
    return document


def _other_paths(serving: Serving, metrics: Metrics) -> App:
    async def health(request: Request) -> Response:
        try:
            await serving.finder.find(_NO_FILE)
        except CafcatError as error:
            record(request.scope, error)
            return JSONResponse({"status": "the catalog does not answer"}, 503)
        return JSONResponse({"status": "ok"})

    catalog = CatalogMetrics(serving.repository.settings)
    serving.call_at_end(catalog.close)

    async def show_metrics(_: Request) -> Response:
        kind, text = metrics.document()
        return Response(text + await catalog.text(), media_type=kind.decode())

    async def describe(_: Request) -> Response:
        return JSONResponse(description())

    async def files(request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        return Response(status_code=308, headers={"location": f"/files/{query}", "vary": "accept"})

    async def top(request: Request) -> Response:
        """Send browsers to the console, and programs to the top folder."""
        is_browser = "text/html" in request.headers.get("accept", "").lower()
        if serving.options.console and (is_browser or not serving.options.files):
            headers = {"location": "./-/", "vary": "accept", "cache-control": "no-store"}
            return Response(status_code=303, headers=headers)
        return await files(request)

    routes = [
        Route("/healthz", health),
        Route("/metrics", show_metrics),
        Route("/openapi.json", describe),
        Route("/", top),
    ]
    if serving.options.files:
        routes.append(Route("/files", files))
    app = Starlette(routes=routes, exception_handlers={404: _absent, 405: _not_allowed})
    app.router.redirect_slashes = False  # Starlette would redirect /healthz/ to a URL with the client's Host
    return app


async def _absent(_: Request, _error: Exception) -> Response:
    return _Refusal(NotFound("there is nothing at this path"))


async def _not_allowed(_: Request, _error: Exception) -> Response:
    return _Refusal(BadRequest(405, "this path can be read only", [(b"allow", b"GET, HEAD")]))


class _Refusal(Response):
    """A response of Starlette with the document of an error."""

    def __init__(self, error: CafcatError) -> None:
        super().__init__()
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as Starlette calls it
        await respond_error(scope, send, self._error)

"""The ASGI application of the console: who may see which page, logins, and the answers."""

import asyncio
import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from cafcat import __version__
from cafcat.errors import AccessDenied, CafcatError, NotFound
from cafcat.packed_files import PackedFiles
from cafcat.serve.asgi import App, Receive, Scope, Send
from cafcat.serve.console.attempts import Attempts
from cafcat.serve.console.blocks import Blocks
from cafcat.serve.console.contents import ContentOf
from cafcat.serve.console.forms import FORM_COOKIE, fields_of, form_token, local_target
from cafcat.serve.console.page import LoginNeeded, Page, Visit
from cafcat.serve.console.pages import HOME, PAGES
from cafcat.serve.console.pages.views import csv_of
from cafcat.serve.console.rendering import link, render
from cafcat.serve.console.sessions import COOKIE, SESSION_SECONDS, new_token
from cafcat.serve.console.static import send_static
from cafcat.serve.console.visitors import Visitor, Visitors
from cafcat.serve.failures import BadRequest, record, status_of
from cafcat.serve.options import ServeOptions

__all__ = ["PREFIX", "Console"]

PREFIX: Final = b"/-/"
"""Path of all pages. Files are below /files/, so no name of a file is taken away."""
_THREADS: Final = 8
_EXPORTS: Final = 2
"""Most results that are sent as CSV at the same time: each has a connection to the database."""
_THEMES: Final = ("auto", "light", "dark")
_THEME_COOKIE: Final = "cafcat_theme"
_THEME_SECONDS: Final = 365 * 86_400
_HEADERS: Final = {
    # Pages load the console's own style sheet, script and previews, and nothing else.
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "media-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_NO_LOGIN: Final = "This access key and secret do not belong together, or the key was revoked or has expired."
_SHOWS_FOLDERS: Final = "Your key shows some folders only; this page is about the whole catalog."
Result = TypeVar("Result")


class Console:
    """Answers requests for the pages of the console. Its queries have a connection of their own."""

    def __init__(self, repository: PackedFiles, options: ServeOptions, files: App) -> None:
        """Create the application. Threads and connections are made by the first request.

        Args:
            repository: Catalog and stores. `close` closes it.
            options: How files are served.
            files: Answers requests for the contents of files, below /files/.
        """
        self._repository = repository
        self._options = options
        self._visitors = Visitors(repository, options)
        self._attempts = Attempts()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="cafcat-console")
        self._files = files
        self._exports = asyncio.Semaphore(_EXPORTS)
        self._app = self._starlette()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI defines it."""
        await self._app(scope, receive, send)

    def close(self) -> None:
        """End the threads, and close the repository."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._repository.close()

    def _starlette(self) -> Starlette:
        routes = [Route(f"/-/{page.name}", partial(self._show, page)) for page in PAGES]
        routes += [
            Route("/-/", self._home),
            Route("/-/raw", self._content),
            Route("/-/csv", self._csv),
            Route("/-/static/{name}", send_static),
            Route("/-/login", self._login_page, methods=["GET"]),
            Route("/-/login", self._log_in, methods=["POST"]),
            Route("/-/logout", self._log_out, methods=["POST"]),
            Route("/-/theme", self._set_theme, methods=["POST"]),
        ]
        handlers: Any = {404: self._absent, 405: self._not_allowed, CafcatError: self._failed}
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.router.redirect_slashes = False
        return app

    async def _home(self, _: Request) -> Response:
        return RedirectResponse(HOME, 303, _HEADERS)

    async def _show(self, page: Page, request: Request) -> Response:
        """Answer a request for a page, or send the visitor to the login."""
        visitor = await self._in_thread(self._visitors.find, request)
        if visitor is None:
            return _to_login(page, request)
        if page.shows_all and not visitor.sees_all:
            if page.name == HOME:
                return RedirectResponse("browse", 303, _HEADERS)
            if visitor.name is None:
                return _to_login(page, request)
            raise AccessDenied(_SHOWS_FOLDERS)
        visit = Visit(self._repository, visitor, dict(request.query_params))
        try:
            return await self._in_thread(self._rendered, page, visit, request)
        except LoginNeeded:
            return _to_login(page, request)

    async def _content(self, request: Request) -> App:
        """Return what answers a request for the content of a file."""
        visitor = await self._in_thread(self._visitors.find, request)
        if visitor is None:
            raise LoginNeeded
        visit = Visit(self._repository, visitor, dict(request.query_params))
        return ContentOf(visit.visible_path("path"), self._files)

    async def _csv(self, request: Request) -> App:
        """Return what answers a request for all rows of a view."""
        visitor = await self._in_thread(self._visitors.find, request)
        if visitor is None or (visitor.name is None and not visitor.sees_all):
            raise LoginNeeded
        if not visitor.sees_all:
            raise BadRequest(403, _SHOWS_FOLDERS)
        visit = Visit(self._repository, visitor, dict(request.query_params))
        name, blocks = await self._in_thread(csv_of, visit)
        headers = _HEADERS | {
            "content-type": "text/csv; charset=utf-8",
            "content-disposition": f'attachment; filename="{name}.csv"',
        }
        return Blocks(blocks, headers, self._pool, self._exports)

    def _rendered(self, page: Page, visit: Visit, request: Request) -> Response:
        content = page.query(visit)
        return self._html(request, f"{page.name}.html", {"title": page.title} | content, visitor=visit.visitor)

    def _html(
        self,
        request: Request,
        template: str,
        content: dict[str, Any],
        *,
        status: int = 200,
        visitor: Visitor | None = None,
    ) -> Response:
        """Return a page, with the cookie that its forms need."""
        token = form_token(request)
        theme = request.cookies.get(_THEME_COOKIE, "")
        name = request.url.path.rpartition("/")[2]
        frame = {
            "pages": [
                page for page in PAGES if page.in_navigation and (visitor is None or _may_see(visitor, page))
            ],
            "visitor": visitor,
            "token": token,
            "theme": theme if theme in _THEMES else "auto",
            "here": link(name, **dict(request.query_params)) if request.method in ("GET", "HEAD") else HOME,
            "name": name,
            "version": __version__,
        }
        response = HTMLResponse(render(template, frame | content), status, dict(_HEADERS))
        if request.cookies.get(FORM_COOKIE) != token:
            self._set_cookie(request, response, FORM_COOKIE, token, SESSION_SECONDS)
        return response

    def _set_cookie(self, request: Request, response: Response, name: str, value: str, seconds: int) -> None:
        """Set a cookie that scripts cannot read, and that no other site makes a browser send."""
        secure = self._visitors.is_encrypted(request)
        response.set_cookie(name, value, max_age=seconds, path="/", secure=secure, httponly=True, samesite="strict")

    async def _login_page(self, request: Request) -> Response:
        return self._login_form(request, request.query_params.get("next", HOME))

    def _login_form(self, request: Request, target: str, *, status: int = 200, problem: str = "") -> Response:
        content = {"title": "Log in", "next": local_target(target, HOME), "problem": problem}
        return self._html(request, "login.html", content, status=status)

    async def _log_in(self, request: Request) -> Response:
        """Check an access key and its secret, and begin a session."""
        fields = await fields_of(request)
        target = local_target(fields.get("next", ""), HOME)
        client = self._visitors.address(request)
        seconds = self._attempts.seconds_to_wait(client)
        if seconds:
            response = self._login_form(
                request, target, status=429, problem=f"Too many attempts: wait {seconds} s."
            )
            response.headers["retry-after"] = str(seconds)
            return response
        access_key_id, secret = fields.get("id", "").strip(), fields.get("secret", "").strip()
        key = await self._in_thread(self._visitors.keys.find, access_key_id)
        # An unknown key takes as long as a wrong secret.
        expected = key.secret if key is not None else "\0"
        is_right = hmac.compare_digest(expected.encode(), secret.encode("utf-8", "replace"))
        if key is None or not is_right:
            self._attempts.add_failure(client)
            return self._login_form(request, target, status=403, problem=_NO_LOGIN)
        response = RedirectResponse(target, 303, _HEADERS)
        self._set_cookie(request, response, COOKIE, new_token(access_key_id, key), SESSION_SECONDS)
        return response

    async def _log_out(self, request: Request) -> Response:
        await fields_of(request)
        response = RedirectResponse("login", 303, _HEADERS)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    async def _set_theme(self, request: Request) -> Response:
        """Remember whether the visitor wants light or dark pages, and go back to the page."""
        fields = await fields_of(request)
        theme = fields.get("theme", "")
        if theme not in _THEMES:
            raise BadRequest(400, "there is no such theme")
        response = RedirectResponse(local_target(fields.get("next", ""), HOME), 303, _HEADERS)
        self._set_cookie(request, response, _THEME_COOKIE, theme, _THEME_SECONDS)
        return response

    async def _in_thread(self, function: Callable[..., Result], *args: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, *args))

    async def _failed(self, request: Request, error: Exception) -> Response:
        """Answer with the page of an error. Errors of the server's side go to the log."""
        assert isinstance(error, CafcatError)  # noqa: S101 - Starlette calls this for nothing else
        status, message = (403, error.message) if error.message == _SHOWS_FOLDERS else status_of(error)
        if status >= 500:
            record(request.scope, error)
        visitor = None
        if status < 500:
            visitor = await self._in_thread(self._visitors.find, request)
        content = {"title": "Not found" if status == 404 else "Error", "status": status, "message": message}
        response = self._html(request, "error.html", content, status=status, visitor=visitor)
        if isinstance(error, BadRequest):
            for name, value in error.headers:
                response.headers[name.decode()] = value.decode()
        return response

    async def _absent(self, request: Request, _: Exception) -> Response:
        return await self._failed(request, NotFound("the console has no such page"))

    async def _not_allowed(self, request: Request, _: Exception) -> Response:
        return await self._failed(
            request, BadRequest(405, "this page can be read only", [(b"allow", b"GET, HEAD")])
        )


def _to_login(page: Page, request: Request) -> Response:
    """Send the visitor to the login, which leads back to the page."""
    target = link(page.name, **dict(request.query_params))
    return RedirectResponse(link("login", next=target), 303, _HEADERS)


def _may_see(visitor: Visitor, page: Page) -> bool:
    return visitor.sees_all or not page.shows_all

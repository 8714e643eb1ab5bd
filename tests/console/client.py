"""A browser without JavaScript in a few lines: it calls the application of the HTTP side, and keeps cookies."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import cafcat
from cafcat.progress import Progress
from cafcat.serve.application import http_app
from cafcat.serve.asgi import App
from cafcat.serve.observing import Metrics
from cafcat.serve.options import ServeOptions
from cafcat.serve.s3.keys import NewKey
from cafcat.serve.serving import Serving

__all__ = ["Answer", "Client", "console"]


@dataclass(frozen=True)
class Answer:
    """A response.

    Attributes:
        url: path and query of the request.
        headers: by lower-case names.
    """

    url: str
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def hrefs(self) -> list[str]:
        """The targets of all links, as they are in the document, without the escapes of HTML."""
        return [found.replace("&amp;", "&") for found in re.findall(r'<a [^>]*href="([^"]*)"', self.text)]


@dataclass
class Client:
    """A visitor.

    Attributes:
        app: the application.
        address: where the visitor comes from.
        cookies: values by name.
        set_cookies: the headers Set-Cookie of all responses.
    """

    app: App
    loop: asyncio.AbstractEventLoop
    address: str = "127.0.0.1"
    scheme: str = "http"
    cookies: dict[str, str] = field(default_factory=dict)
    set_cookies: list[str] = field(default_factory=list)

    def another(self, **changes: Any) -> "Client":
        """Return a visitor without cookies."""
        return replace(self, cookies={}, set_cookies=[], **changes)

    def get(self, url: str, headers: dict[str, str] | None = None, method: str = "GET") -> Answer:
        """Send a request as a browser does."""
        return self.send(method, url, b"", {"accept": "text/html,*/*;q=0.8"} | (headers or {}))

    def post(self, url: str, fields: dict[str, str], headers: dict[str, str] | None = None) -> Answer:
        """Send a form."""
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return self.send("POST", url, urlencode(fields).encode(), kind | (headers or {}))

    def follow(self, answer: Answer) -> Answer:
        """Go where a redirect leads to."""
        return self.get(urljoin(answer.url, answer.headers["location"]))

    def token(self) -> str:
        """Return the token that the forms of the visitor's pages have."""
        found = re.search(r'name="token" value="([^"]+)"', self.get("/-/login").text)
        assert found
        return found[1]

    def log_in(self, key: NewKey, **fields: str) -> Answer:
        """Send the form of the login."""
        given = {"token": self.token(), "id": key.access_key_id, "secret": key.secret_access_key, "next": ""}
        return self.post("/-/login", given | fields)

    def send(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> Answer:
        parts = urlsplit(url)
        sent = [(name.encode(), value.encode()) for name, value in headers.items()]
        if self.cookies:
            sent.append((b"cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()).encode()))
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": self.scheme,
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(b"host", b"cafcat.test"), *sent],
            "client": (self.address, 1234),
            "server": ("cafcat.test", 80),
        }
        messages: list[Any] = []
        requests = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not requests:
                await asyncio.Event().wait()  # the visitor does not leave
            return requests.pop()

        async def keep(message: Any) -> None:
            messages.append(message)

        self.loop.run_until_complete(self.app(scope, receive, keep))
        found = [(name.decode().lower(), value.decode()) for name, value in messages[0]["headers"]]
        self._keep_cookies([value for name, value in found if name == "set-cookie"])
        content = b"".join(message.get("body", b"") for message in messages[1:])
        return Answer(url, messages[0]["status"], dict(found), content)

    def _keep_cookies(self, lines: list[str]) -> None:
        self.set_cookies += lines
        for line in lines:
            for name, morsel in SimpleCookie(line).items():
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = morsel.value


@contextmanager
def console(repository: cafcat.Repository, **options: Any) -> Iterator[Client]:
    """Yield a visitor of the HTTP side of `cafcat serve`, without a server.

    Args:
        repository: the repository.
        options: options of `cafcat serve`.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()

        async def made() -> tuple[Serving, App]:
            given = ServeOptions(**options)
            given.check()
            serving = Serving(repository, given, Progress())
            return serving, http_app(serving, Metrics())

        serving, app = runner.run(made())
        try:
            yield Client(app, loop)
        finally:
            serving.close()

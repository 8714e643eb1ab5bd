"""The style sheet, script and icon of the console. Their URLs have a hash of the content, so they never change."""

import hashlib
from functools import cache
from importlib.resources import files as resources
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from cafcat.errors import NotFound

__all__ = ["send_static", "static_url"]

_KINDS: Final = {
    "console.css": "text/css; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class _File(NamedTuple):
    """A static file: the last part of its URL, its media type and its content."""

    name: str
    kind: str
    content: bytes


@cache
def _files() -> dict[str, _File]:
    """Return the static files by their names in the package."""
    found = {}
    for name, kind in _KINDS.items():
        content = resources(__package__).joinpath("static", name).read_bytes()
        stem, _, suffix = name.partition(".")
        digest = hashlib.sha256(content).hexdigest()[:16]
        found[name] = _File(f"{stem}-{digest}.{suffix}", kind, content)
    return found


def static_url(name: str) -> str:
    """Return the URL of a static file, relative to a page of the console."""
    return f"static/{_files()[name].name}"


async def send_static(request: Request) -> Response:
    """Answer a request for a static file.

    Raises:
        NotFound: There is no such file, or not any more.
    """
    for file in _files().values():
        if file.name == request.path_params["name"]:
            headers = {"cache-control": _FOR_EVER, "x-content-type-options": "nosniff"}
            return Response(file.content, media_type=file.kind, headers=headers)
    raise NotFound("the console has no such file")

"""Forms of the console: their fields, and the proof that they were sent by a page of the console."""

import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from cafcat.serve.failures import BadRequest

__all__ = ["FORM_COOKIE", "fields_of", "form_token", "local_target"]

FORM_COOKIE: Final = "cafcat_form"
"""Cookie with the token that every form must send back: other sites can neither read nor set it."""
_TOKEN: Final = re.compile("[A-Za-z0-9_-]{32}")
_MOST_BYTES: Final = 8192
_TARGET: Final = re.compile(r"[a-z]+(\?[^\x00-\x20\x7f]*)?")
"""URLs of the console's pages, relative to each other: no other host can be named."""


def form_token(request: Request) -> str:
    """Return the token for the forms of a page: that of the visitor's cookie, or a new one."""
    token = request.cookies.get(FORM_COOKIE, "")
    return token if _TOKEN.fullmatch(token) else secrets.token_urlsafe(24)


async def fields_of(request: Request) -> Mapping[str, str]:
    """Return the fields of a form that a page of the console has sent.

    Raises:
        BadRequest: The body is not a form of up to 8 KiB (400, 413), or the form comes from elsewhere (403).
    """
    body = b""
    async for block in request.stream():
        body += block
        if len(body) > _MOST_BYTES:
            raise BadRequest(413, "the form is too large")
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=16))
    except ValueError:
        raise BadRequest(400, "the form is not valid") from None
    token = request.cookies.get(FORM_COOKIE, "")
    is_own = bool(_TOKEN.fullmatch(token)) and hmac.compare_digest(token.encode(), fields.get("token", "").encode())
    if not is_own or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise BadRequest(403, "the form was not sent by a page of the console; load the page again")
    return fields


def local_target(target: str, default: str) -> str:
    """Return the page to which a form leads back, if it is one of the console's; else the default."""
    return target if _TARGET.fullmatch(target) else default

"""http:// and https:// URLs: how they are parsed, and what name and root their files get in the catalog."""

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from cafcat.errors import InvalidInput
from cafcat.sources.names import shown_url
from cafcat.sources.roots import root_of

if TYPE_CHECKING:
    from urllib3.util import Url

__all__ = ["parsed_url", "url_name", "url_root"]

_HTTP: Final = re.compile(r"https?://", re.IGNORECASE)
_VISIBLE_ASCII: Final = "".join(map(chr, range(0x21, 0x7F)))


def parsed_url(url: str) -> "Url":
    """Return the parts of an http(s) URL, normalized and percent-encoded as in RFC 3986.

    Raises:
        InvalidInput: This is not an http(s) URL, or it has no host. The message shows no secret.
    """
    from urllib3.exceptions import LocationValueError
    from urllib3.util import parse_url

    parts = None
    with suppress(LocationValueError):  # the message of this error contains the whole URL
        parts = parse_url(quote(os.fsencode(url), safe=_VISIBLE_ASCII)) if _HTTP.match(url) else None
    if parts is None or not parts.host:
        raise InvalidInput(f"not a valid http:// or https:// URL: {shown_url(url)}")
    return parts


def url_name(url: str) -> str:
    """Return the name that the file at an http(s) URL gets in the catalog: "host/path", percent-decoded.

    Port, user, query and fragment are not part of the name. Bytes that are not UTF-8 are decoded as os.fsdecode
    does.

    Raises:
        InvalidInput: This is not an http(s) URL, or it has no host.
    """
    parts = parsed_url(url)
    return (parts.host or "").strip("[]") + unquote(parts.path or "/", errors="surrogateescape")


def url_root(url: str, path: str) -> str:
    """Return the root of a file: the part of its URL that its name in the catalog does not repeat (`root_of`).

    User, password and query are left out: they may be secrets, and signed URLs of one file differ in the query.
    """
    return root_of(shown_url(url), path)

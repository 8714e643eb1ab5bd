"""Converts the paths of URLs to names of files in the catalog, and back."""

import re
from typing import Final
from urllib.parse import parse_qs, quote, unquote_to_bytes

from cafcat.model import MAX_PATH_BYTES
from cafcat.serve.failures import BadRequest

__all__ = ["Query", "name_of", "query_of", "quoted"]

Query = dict[str, list[str]]
"""Values by the names of a query, in their order."""
_MOST_FIELDS: Final = 16

_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_NOT_SERVED: Final = frozenset(("", ".", ".."))


def name_of(raw: bytes) -> str:
    """Return the name of a file or folder, from the part of a URL's path after "/files/".

    A name has one spelling only: parts ".", ".." and "" are refused, however they are escaped, because clients and
    proxies remove them, and would then ask for another file.

    Args:
        raw: The part of the path, percent-encoded.

    Returns:
        The name. "" for the top folder; the name of any other folder ends in a slash.

    Raises:
        BadRequest: No file can have this name (400), or the name is too long (414).
    """
    if b"%" in raw:
        if _BAD_ESCAPE.search(raw):
            raise BadRequest(400, "the path has a % without two hexadecimal digits")
        raw = unquote_to_bytes(raw)
    if len(raw) > MAX_PATH_BYTES + 1:
        raise BadRequest(414, f"the name is longer than {MAX_PATH_BYTES:,} bytes")
    if b"\0" in raw:
        raise BadRequest(400, "the path has a NUL")
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise BadRequest(400, "the path is not valid UTF-8") from None
    is_odd = b"." in raw or b"//" in raw or raw.startswith(b"/")
    if is_odd and not _NOT_SERVED.isdisjoint(name.removesuffix("/").split("/")):
        raise BadRequest(400, 'the path has a part that is ".", ".." or empty')
    return name


def quoted(name: str) -> str:
    """Return a name percent-encoded for the path of a URL. Slashes stay."""
    return quote(name)


def query_of(raw: bytes) -> Query:
    """Return the fields of a URL's query.

    Raises:
        BadRequest: The query is not valid UTF-8, or has more than 16 fields.
    """
    if not raw:
        return {}
    try:
        return parse_qs(raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise BadRequest(400, "the query of the URL is not valid") from None

"""Pages of listings: parameters, continuation tokens, and the keyset pages of the catalog behind them."""

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from cafcat.catalog.files.lookup import Lookup
from cafcat.catalog.files.scope import successor
from cafcat.model import Folder, Location
from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.request import S3Request
from cafcat.support.paths import end_of_prefix

__all__ = [
    "MAX_KEYS",
    "Ranges",
    "common_prefix",
    "delimiter_of",
    "entries_after",
    "invalid",
    "max_keys",
    "start_after",
    "token_after",
    "token_for",
]

MAX_KEYS: Final = 1000
"""Most entries of one page."""
Ranges = Sequence[tuple[str, str | None]]
"""Half-open ranges of paths, in order: the lowest path, and the first path after the range."""


def invalid(name: str, value: str, message: str) -> S3Error:
    """Return the error for a parameter whose value is invalid."""
    return S3Error("InvalidArgument", message, {"ArgumentName": name, "ArgumentValue": value})


def max_keys(request: S3Request, name: str = "max-keys", most: int = MAX_KEYS) -> int:
    """Return the largest number of entries that the client asked for, at most `most`.

    Args:
        request: The request.
        name: Name of the parameter.
        most: Largest number, and the number if the parameter is missing.

    Raises:
        S3Error: It is not a number, or negative.
    """
    text = request.parameters.get(name, "")
    if not text:
        return most
    if not text.isascii() or not text.isdigit():
        raise invalid(name, text, f"Provided {name} not an integer or within integer range")
    return most if len(text) > 9 else min(int(text), most)


def delimiter_of(request: S3Request) -> str:
    """Return the delimiter; "" for none.

    Raises:
        S3Error: It has no character but U+10FFFF, after which no other text can be found.
    """
    delimiter = request.parameters.get("delimiter", "")
    if delimiter and end_of_prefix(delimiter) is None:
        raise invalid("delimiter", delimiter, "The delimiter is not supported")
    return delimiter


def token_for(after: str) -> str:
    """Return a continuation token for the entries after a key or common prefix."""
    return base64.urlsafe_b64encode(after.encode()).decode()


def token_after(request: S3Request) -> str:
    """Return the key or common prefix after which the requested page begins; "" for the first page.

    Raises:
        S3Error: The token is none that `token_for` returned.
    """
    token = request.parameters.get("continuation-token", "")
    try:
        after = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        after = "\0"
    if "\0" in after:
        raise invalid("continuation-token", token, "The continuation token provided is incorrect")
    return after


def common_prefix(path: str, prefix: str, delimiter: str) -> str | None:
    """Return the path up to the first delimiter after a prefix, inclusive; None if there is no delimiter."""
    place = path.find(delimiter, len(prefix)) if delimiter else -1
    return None if place < 0 else path[: place + len(delimiter)]


def start_after(after: str, prefix: str, delimiter: str) -> str:
    """Return the lowest path after a key or a common prefix of an earlier page; "" for the first page."""
    if not after:
        return ""
    if after.startswith(prefix) and common_prefix(after, prefix, delimiter) == after:
        return end_of_prefix(after) or successor(after)
    return successor(after)


def entries_after(
    files: Lookup, ranges: Ranges, *, prefix: str, delimiter: str, after: str, limit: int
) -> tuple[list[Location | Folder], bool]:
    """Return a page of files and common prefixes, and True if there are more of them.

    The page costs one look-up in the index for each entry, whatever the number of files below a common prefix.

    Args:
        files: Look-ups in the catalog.
        ranges: The paths that are listed.
        prefix: Text at the start of all listed paths, in which no delimiter is looked for.
        delimiter: Text at which common prefixes end; "" for no common prefixes.
        after: Path or common prefix after which the page begins; "" for the first page.
        limit: Largest number of entries.
    """
    bound, entries = start_after(after, prefix, delimiter), list[Location | Folder]()
    if limit == 0:
        return entries, False
    for low, high in ranges:
        first, rows = max(low, bound), limit + 1 - len(entries)
        if high is not None and first >= high:
            continue
        if delimiter:
            entries += files.level_page(first, high, skipped=len(prefix), delimiter=delimiter, limit=rows)
        else:
            entries += files.range_page(first, high, rows)
        if len(entries) > limit:
            return entries[:limit], True
        if entries:  # two ranges can have files below the same common prefix
            bound = start_after(entries[-1].path, prefix, delimiter)
    return entries, False

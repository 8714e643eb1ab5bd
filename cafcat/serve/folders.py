"""Folders as JSON and as plain HTML pages, page by page."""

import asyncio
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from cafcat.catalog.files.lookup import Lookup
from cafcat.errors import CafcatError, NotFound
from cafcat.model import MAX_PATH_BYTES, Folder, Location
from cafcat.serve.asgi import Headers, Receive, Scope, Send, respond
from cafcat.serve.failures import BadRequest, record
from cafcat.serve.names import Query, quoted
from cafcat.serve.representation import etag_of
from cafcat.serve.sending import ClientLeft, send_blocks
from cafcat.support.paths import is_text
from cafcat.support.quantities import format_size

__all__ = ["Folders"]

_PAGE_ENTRIES: Final = 1000
"""Most entries of one page."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STYLE: Final = (
    ":root{color-scheme:light dark;background:Canvas;color:CanvasText}"
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:.5rem 1rem}"
    "h1{font-size:1.25rem;overflow-wrap:anywhere}a{text-decoration:none}a:hover{text-decoration:underline}"
    "table{border-collapse:collapse;width:100%}tr{border-top:1px solid #8885}"
    "td{padding:.25rem 0;vertical-align:baseline}"
    # A name may have spaces at its ends, line breaks, or no place to break a line.
    "td:first-child{overflow-wrap:anywhere;white-space:pre-wrap;width:100%}"
    "td.n,td.t{padding-left:1.5rem;text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    "@media(max-width:40rem){td{display:inline-block}td:first-child{padding-bottom:0}"
    "td.n,td.t{font-size:.875rem;padding:0 1rem .25rem 0}}"
)
"""Style of a page: light or dark as the browser prefers; in a narrow window, size and time are below the name."""
_VIEWPORT: Final = '<meta name="viewport" content="width=device-width">'
_POLICY: Final = b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
Entry = Location | Folder


class Folders:
    """Answers GET and HEAD of folders."""

    def __init__(self, files: Lookup, pool: Executor) -> None:
        """Create an object.

        Args:
            files: Lists the folders.
            pool: Threads that query the catalog.
        """
        self._files = files
        self._pool = pool

    async def respond(
        self, folder: str, headers: Mapping[bytes, bytes], query: Query, asgi: tuple[Scope, Receive, Send]
    ) -> None:
        """Send one page of a folder, or all of it to a program that cannot know of pages.

        Args:
            folder: Path of the folder, with "/" at its end; "" for the top.
            headers: Headers of the request.
            query: `after` (name of the last entry of the page before), `limit` and `format`.
            asgi: The request.

        Raises:
            BadRequest: A value of the query is invalid.
            NotFound: The catalog has no such folder.
        """
        after, limit = _after(folder, query), _limit(query)
        loop = asyncio.get_running_loop()
        entries = await loop.run_in_executor(self._pool, self._page, folder, after, limit)
        if folder and not entries and after is None:
            raise NotFound("the catalog has no such folder")
        if after is None and "limit" not in query and _cannot_page(headers, query):
            await self._send_all(folder, entries, asgi)
            return
        following = entries[limit - 1] if len(entries) > limit else None
        entries = entries[:limit]
        if _wants_html(headers, query):
            kind, body = b"text/html; charset=utf-8", _html(folder, entries, following, limit)
        else:
            kind, body = b"application/json", _json(folder, entries, following)
        length = (b"content-length", b"%d" % len(body))
        await respond(asgi[2], 200, [*_headers(kind), length], body)

    async def _send_all(self, folder: str, entries: Sequence[Entry], asgi: tuple[Scope, Receive, Send]) -> None:
        """Send a page of HTML with all entries of a folder, while they are read."""
        scope, receive, send = asgi
        start = {"type": "http.response.start", "status": 200, "headers": _headers(b"text/html; charset=utf-8")}
        await send(start)
        blocks = self._all(folder, entries) if scope["method"] == "GET" else iter(())
        try:
            await send_blocks(blocks, scope, receive, send, self._pool)
        except ClientLeft:
            return
        except CafcatError as error:
            record(scope, error)
            return
        await send({"type": "http.response.body", "body": b""})

    def _all(self, folder: str, entries: Sequence[Entry]) -> Iterator[bytes]:
        """Yield a page of HTML in blocks. This runs in a thread.

        Args:
            folder: Path of the folder.
            entries: Its first entries.
        """
        yield _head(folder)
        while entries:
            yield "".join(_row(entry, folder) for entry in entries).encode()
            entries = self._page(folder, entries[-1], _PAGE_ENTRIES)
        yield _TAIL

    def _page(self, folder: str, after: Entry | None, limit: int) -> list[Entry]:
        """Return up to `limit` + 1 entries: the last one shows that there is another page."""
        return self._files.folder_page(folder, after=after, limit=limit + 1)


def _headers(kind: bytes) -> Headers:
    return [
        (b"content-type", kind),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", _POLICY),
        (b"cache-control", b"no-cache"),
        (b"vary", b"accept"),
    ]


def _after(folder: str, query: Query) -> Entry | None:
    """Return the entry after which the page begins, from its name: that of a folder ends in a slash."""
    name = query.get("after", [""])[-1]
    if not name:
        return None
    path = folder + name
    if not is_text(path) or len(path.encode()) > MAX_PATH_BYTES + 1:
        raise BadRequest(400, "after is not the name of an entry")
    if path.endswith("/"):
        return Folder(path)
    return Location(path, 0, 0, 0, None, UUID(int=0), "", "")  # only its path is used


def _limit(query: Query) -> int:
    text = query.get("limit", [str(_PAGE_ENTRIES)])[-1]
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= _PAGE_ENTRIES):
        raise BadRequest(400, f"limit must be a number from 1 to {_PAGE_ENTRIES:,}")
    return int(text)


def _wants_html(headers: Mapping[bytes, bytes], query: Query) -> bool:
    """Return True for a page, False for JSON: as `format` says, else as the header Accept does.

    A client that accepts anything gets a page, because programs that walk through folders of web servers read
    pages.
    """
    if "format" in query:
        if query["format"][-1] not in ("html", "json"):
            raise BadRequest(400, "format must be html or json")
        return query["format"][-1] == "html"
    accepted = headers.get(b"accept", b"*/*").lower()
    return b"text/html" in accepted or b"application/json" not in accepted


def _cannot_page(headers: Mapping[bytes, bytes], query: Query) -> bool:
    """Return True for a program that gets HTML although its Accept header does not name HTML."""
    return _wants_html(headers, query) and b"text/html" not in headers.get(b"accept", b"").lower()


def _json(folder: str, entries: Sequence[Entry], following: Entry | None) -> bytes:
    document = {
        "path": folder,
        "folders": [_name(entry, folder) for entry in entries if isinstance(entry, Folder)],
        "files": [_document(entry, folder) for entry in entries if isinstance(entry, Location)],
        "after": None if following is None else _name(following, folder),
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _document(location: Location, folder: str) -> dict[str, Any]:
    return {
        "name": _name(location, folder),
        "size_bytes": location.size_bytes,
        "modified_at": _time(location),
        "crc32c": location.crc32c,
        "etag": etag_of(location).decode().strip('"'),
    }


def _name(entry: Entry, folder: str) -> str:
    return entry.path[len(folder) :]


def _time(location: Location) -> str | None:
    if location.modified_ns is None:
        return None
    try:
        when = _EPOCH + timedelta(microseconds=location.modified_ns // 1000)
    except OverflowError:
        return None
    return when.isoformat(timespec="seconds").replace("+00:00", "Z")


def _html(folder: str, entries: Sequence[Entry], following: Entry | None, limit: int) -> bytes:
    rows = "".join(_row(entry, folder) for entry in entries).encode()
    more = ""
    if following is not None:
        after = html.escape(quoted(_name(following, folder)).replace("/", "%2F"))
        size = "" if limit == _PAGE_ENTRIES else f"&amp;limit={limit}"
        more = f'<tr><td><a rel="next" href="?after={after}{size}">more</a></td></tr>'
    return _head(folder) + rows + more.encode() + _TAIL


def _head(folder: str) -> bytes:
    title = html.escape("/" + folder)
    up = '<tr><td><a href="../">../</a></td></tr>' if folder else ""
    head = f'<meta charset="utf-8">{_VIEWPORT}<title>{title}</title><style>{_STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body><h1>{title}</h1><table>{up}".encode()


_TAIL: Final = b"</table></body></html>\n"


def _row(entry: Entry, folder: str) -> str:
    name = _name(entry, folder)
    link = f'<a href="./{html.escape(quoted(name))}">{html.escape(name)}</a>'
    if isinstance(entry, Folder):
        return f"<tr><td>{link}</td></tr>"
    size, time = format_size(entry.size_bytes), _time(entry) or ""
    return f'<tr><td>{link}</td><td class="n">{size}</td><td class="t">{time}</td></tr>'

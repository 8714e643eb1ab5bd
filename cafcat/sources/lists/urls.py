"""Files by URLs, in a list: s3:// objects, and what web servers have at http:// and https://."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, unquote, unquote_to_bytes

from cafcat.errors import AccessDenied, CafcatError, InvalidInput, NotFound, SourceFailed
from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.remote.access import S3Access
from cafcat.remote.address import parse_s3
from cafcat.sources.base import OpenFile, open_or_error
from cafcat.sources.filter import PathFilter
from cafcat.sources.names import check_name, folder_prefix, member_name, printable

if TYPE_CHECKING:
    from urllib3.util import Url

    from cafcat.remote.reading import ObjectHead
    from cafcat.sources.http.files import HttpFiles
from cafcat.sources.fetched import fetched

__all__ = [
    "UrlFiles",
    "file_path",
    "in_turn",
    "is_url",
    "parsed_url",
    "shown_url",
    "url_name",
]

_URL: Final = re.compile(r"(?:s3|https?)://", re.IGNORECASE)
_HTTP: Final = re.compile(r"https?://", re.IGNORECASE)
_FILE: Final = re.compile(r"file://(?:localhost)?(/.*)", re.IGNORECASE | re.DOTALL)
_AUTHORITY: Final = re.compile(r"(?:.*@)?([^@:\[\]]*|\[[^@\[\]]*\])(:[0-9]*)?", re.DOTALL)
_VISIBLE_ASCII: Final = "".join(map(chr, range(0x21, 0x7F)))

Item = TypeVar("Item")
Result = TypeVar("Result")


def is_url(text: str) -> bool:
    """Whether it is the URL of something far away."""
    return _URL.match(text) is not None


def file_path(text: str) -> str:
    """The path that a file:// URL means, percent-decoded (RFC 8089); any other text as it is. Raises InvalidInput
    for a file of another machine."""
    if text[:7].lower() != "file://":
        return text
    match = _FILE.fullmatch(text)
    if match is None:
        raise InvalidInput("a file:// URL names an absolute path on this machine: file:///folder/file")
    return os.fsdecode(unquote_to_bytes(os.fsencode(match[1])))


def url_name(url: str) -> str:
    """What a URL is called in the catalog: the key, or "host/path", percent-decoded; bytes that are not UTF-8 as
    os.fsdecode has them. Port, user, query and fragment are no part of it. Raises InvalidInput if it is no URL."""
    if not _HTTP.match(url):
        return parse_s3(url).key
    parts = parsed_url(url)
    return (parts.host or "").strip("[]") + unquote(parts.path or "/", errors="surrogateescape")


def shown_url(url: str) -> str:
    """A URL for messages: without user, password, query and fragment, which may be secrets. In an s3:// URL, "?"
    and "#" are part of the key."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() != "s3":
        rest = re.split("[?#]", rest, maxsplit=1)[0]
    authority, slash, path = rest.partition("/")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:  # where a password ends here, nobody can tell
        return f"{printable(scheme)}://..."
    return printable(f"{scheme}://{match[1]}{match[2] or ''}{slash}{path}")


def parsed_url(url: str) -> "Url":
    """An http(s):// URL in the words of RFC 3986: normalized, percent-encoded, with a host. Raises InvalidInput."""
    from urllib3.exceptions import LocationValueError
    from urllib3.util import parse_url

    parts = None
    with suppress(LocationValueError):  # its message has the whole URL
        parts = parse_url(quote(os.fsencode(url), safe=_VISIBLE_ASCII)) if _HTTP.match(url) else None
    if parts is None or not parts.host:
        raise InvalidInput(f"not an http:// or https:// URL: {shown_url(url)}")
    return parts


def in_turn(
    items: Iterable[Item],
    is_far: Callable[[Item], bool],
    near: Callable[[Item], Iterator[Result]],
    far: Callable[[Item], Iterable[Result]],
    cost: Callable[[Item], int],
) -> Iterator[Result]:
    """The results of all items, in their order: far ones by many threads at once; near ones in the caller's thread,
    in their turn. Up to the first far item there are no threads.

    Args: near: a generator function; far: safe to call in threads; cost: bytes in memory that a far item comes to.
    """
    items = iter(items)
    for item in items:
        if is_far(item):
            break
        yield from near(item)
    else:
        return

    def begun(item: Item) -> Iterable[Result]:
        return far(item) if is_far(item) else near(item)

    def cost_of(item: Item) -> int:
        return cost(item) if is_far(item) else 0

    for results in fetched(begun, chain([item], items), cost_of):
        yield from results


class UrlFiles:
    """The files of URLs. Safe to share by threads."""

    def __init__(self, *, prefix: str, filter: PathFilter | None, access: Callable[[str], S3Access]) -> None:
        """Args: prefix: folder of the catalog that the names are put into; filter: is shown the names without it;
        access: how the bucket of an s3:// URL is reached."""
        self._prefix = folder_prefix(member_name(prefix)[0])
        self._filter = filter
        self._access = access
        self._lock = Lock()
        self._http: HttpFiles | None = None
        self._buckets: dict[tuple[str, S3Access], _Bucket] = {}

    def find(self, url: str) -> Iterable[SourceFile | FileProblem]:
        """What is at the URL, by one or two requests; nothing if the filter does not take it. Raises AccessDenied
        for refused credentials."""
        try:
            name = url_name(url)
            refused = _refused(name) or check_name(self._prefix + name)
        except InvalidInput as error:
            return [FileProblem(shown_url(url), ProblemKind.NAME, error.message)]
        if self._filter is not None and not self._filter.takes(name):
            return []
        path = self._prefix + name
        if refused:
            return [FileProblem(printable(path) if name else shown_url(url), ProblemKind.NAME, refused)]
        try:
            return [self._place_of(url).look(SourceFile(path, 0, 0, url))]
        except SourceFailed as error:
            return [FileProblem(printable(path), ProblemKind(error.problem), error.message)]

    def open(self, file: SourceFile) -> OpenFile:
        """Raises SourceFailed if it changed since it was found, vanished or cannot be read; AccessDenied for
        refused credentials."""
        return self._place_of(file.locator).open(file)

    def open_or_error(self, file: SourceFile) -> Iterable[OpenFile | SourceFailed]:
        """The same, with SourceFailed as a result."""
        return [open_or_error(self.open, file)]

    def _place_of(self, url: str) -> "HttpFiles | _Bucket":
        from cafcat.sources.http.files import HttpFiles

        with self._lock:
            if _HTTP.match(url):
                self._http = self._http or HttpFiles()
                return self._http
            place = parse_s3(url).bucket, self._access(url)
            if place not in self._buckets:
                self._buckets[place] = _Bucket(*place)
            return self._buckets[place]


class _Bucket:
    """The objects of one bucket, by SourceFiles whose locator is the URL."""

    def __init__(self, bucket: str, access: S3Access) -> None:
        from cafcat.remote.connection import S3Connection
        from cafcat.sources.s3.objects import S3Objects

        self._connection = S3Connection(bucket, access)
        self._objects = S3Objects(self._connection)

    def look(self, file: SourceFile) -> SourceFile:
        """With size, time and entity tag. Raises SourceFailed, AccessDenied."""
        from cafcat.remote.errors import ObjectDenied

        try:
            head = self._head(parse_s3(file.locator).key)
        except CafcatError as error:
            if isinstance(error, AccessDenied) and not isinstance(error, ObjectDenied):
                raise
            kind = ProblemKind.VANISHED if isinstance(error, NotFound) else ProblemKind.UNREADABLE
            raise SourceFailed(error.message, path=printable(file.path), problem=kind.value) from error
        return file._replace(size_bytes=head.size_bytes, modified_ns=head.modified_ns, etag=head.etag)

    def open(self, file: SourceFile) -> OpenFile:
        return self._objects.open(file._replace(locator=parse_s3(file.locator).key))

    def _head(self, key: str) -> "ObjectHead":
        """One request; a second where that was refused: the answer to a HEAD cannot say whether we are refused, or
        only this object."""
        from cafcat.remote.errors import ObjectDenied
        from cafcat.remote.reading import RemoteObject

        remote = RemoteObject(self._connection, key)
        try:
            return remote.head()
        except ObjectDenied:
            remote.read_at(0, 1)
            raise


def _refused(name: str) -> str | None:
    if not name:
        return "the URL names no object"
    if ".." in name.split("/"):
        return "the name has a part '..'"
    return "the URL names a folder" if name.endswith("/") else None

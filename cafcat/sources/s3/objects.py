"""Opening objects of a bucket: small ones whole and many at once, large ones as streams."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from cafcat.errors import (
    AccessDenied,
    CafcatError,
    Conflict,
    Corrupt,
    NotFound,
    ServerFailed,
    SourceFailed,
    StoreFailed,
)
from cafcat.model import ProblemKind, SourceFile
from cafcat.remote.connection import S3Connection
from cafcat.remote.errors import ObjectDenied
from cafcat.remote.reading import RemoteObject
from cafcat.sources.base import open_or_error
from cafcat.sources.fetched import SMALL_BYTES, FetchedFile, bytes_when_open, fetched
from cafcat.sources.names import printable

__all__ = ["S3Objects"]

_OUTAGE: Final = 20
"""So many objects in a row that the server does not give: it is the server, not the objects."""

_PROBLEMS: Final = (
    (Conflict, ProblemKind.CHANGED, "changed since it was listed"),
    (NotFound, ProblemKind.VANISHED, "was deleted since it was listed"),
    (Corrupt, ProblemKind.CHANGED, "is shorter than it was listed"),
)


class S3Objects:
    """The objects of one bucket, by SourceFiles whose locator is the key. Where they have an entity tag, only that
    version of the object is read. Safe to share by threads."""

    def __init__(self, connection: S3Connection) -> None:
        self._connection = connection
        self._outage = _Outage()

    def open(self, file: SourceFile) -> FetchedFile:
        """Raises SourceFailed if it changed, vanished or cannot be read; AccessDenied for refused credentials."""
        remote = RemoteObject(self._connection, file.locator, file.etag)
        try:
            if file.size_bytes <= SMALL_BYTES:
                head, content = remote.read()
            elif file.etag is None:
                head, content = remote.head(), None
                remote = RemoteObject(self._connection, file.locator, head.etag)
            else:
                return self._streamed(file, remote)
        except CafcatError as error:
            raise _failed(file, error) from error
        if file.etag is None:
            file = file._replace(size_bytes=head.size_bytes, modified_ns=head.modified_ns, etag=head.etag)
        elif head.size_bytes != file.size_bytes:
            raise _failed(file, Conflict("another size"))
        return _whole(file, content) if content is not None else self._streamed(file, remote)

    def _streamed(self, file: SourceFile, remote: RemoteObject) -> FetchedFile:
        return FetchedFile(file, None, lambda: self._blocks(file, remote), modified_ns=file.modified_ns)

    def _blocks(self, file: SourceFile, remote: RemoteObject) -> Iterator[bytes]:
        """Of a large object; where the connection breaks, a further request goes on."""
        try:
            yield from remote.blocks(0, file.size_bytes)
        except CafcatError as error:
            self._outage.failed(error)
            raise _failed(file, error) from error
        self._outage.ended()

    def open_each(self, files: Iterable[SourceFile]) -> Iterator[FetchedFile | SourceFailed]:
        """Opens the files, in order, many requests at once. Raises what ends the whole source: refused
        credentials, or a server that has given nothing for 20 objects in a row."""
        for result in fetched(partial(open_or_error, self.open), files, bytes_when_open):
            if isinstance(result, SourceFailed):
                self._outage.failed(result.__cause__)
            elif result.is_read:
                self._outage.ended()
            yield result


class _Outage:
    """Counts what the server does not give, to know when it is the server."""

    def __init__(self) -> None:
        self._failed_in_a_row = 0

    def failed(self, cause: BaseException | None) -> None:
        """Raises the cause when it is the twentieth in a row."""
        if not isinstance(cause, ServerFailed | ObjectDenied):
            self._failed_in_a_row = 0
            return
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= _OUTAGE:
            raise cause

    def ended(self) -> None:
        """An object was read."""
        self._failed_in_a_row = 0


def _whole(file: SourceFile, content: bytes) -> FetchedFile:
    return FetchedFile(file, content, modified_ns=file.modified_ns)


def _failed(file: SourceFile, error: CafcatError) -> SourceFailed:
    """What an error means for the one object; the error itself if it is about all of them."""
    path = printable(file.path)
    for kind, problem, message in _PROBLEMS:
        if isinstance(error, kind):
            return SourceFailed(message, path=path, problem=problem.value)
    if isinstance(error, StoreFailed | ObjectDenied):
        return SourceFailed(error.message, path=path, problem=ProblemKind.UNREADABLE.value)
    if isinstance(error, AccessDenied):
        raise error
    return SourceFailed(error.message, path=path, problem=ProblemKind.UNREADABLE.value)

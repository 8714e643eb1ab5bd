"""Opens objects of a bucket: small ones whole and many at the same time, large ones as streams."""

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
from cafcat.remote.bucket import Bucket
from cafcat.remote.errors import ObjectDenied
from cafcat.remote.reading import RemoteObject
from cafcat.sources.base import open_or_error
from cafcat.sources.fetched import SMALL_BYTES, FetchedFile, bytes_when_open, fetched
from cafcat.sources.names import printable

__all__ = ["S3Objects"]

_OUTAGE: Final = 20
"""How many objects in a row the server must fail to supply, or deny, until the whole source fails."""

_PROBLEMS: Final = (
    (Conflict, ProblemKind.CHANGED, "changed since it was listed"),
    (NotFound, ProblemKind.VANISHED, "was deleted since it was listed"),
    (Corrupt, ProblemKind.CHANGED, "is shorter than when it was listed"),
)


class S3Objects:
    """Opens the objects of one bucket. The locator of a SourceFile is the object's key. Threads may share it.

    If a SourceFile has an entity tag, only that version of the object is read.
    """

    def __init__(self, connection: Bucket) -> None:
        self._connection = connection
        self._outage = _Outage()

    def open(self, file: SourceFile) -> FetchedFile:
        """Open an object of the bucket. One of up to 1 MiB is read at once, a larger one when its blocks are read.

        Raises:
            SourceFailed: The object has changed, has vanished, or cannot be read.
            AccessDenied: The credentials are refused.
        """
        remote = RemoteObject(self._connection, file.locator, file.etag, is_patient=True)
        try:
            if file.size_bytes <= SMALL_BYTES:
                head, content = remote.read(file.size_bytes)
            elif file.etag is None:
                head, content = remote.head(), None
                remote = RemoteObject(self._connection, file.locator, head.etag, is_patient=True)
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
        return FetchedFile(file, None, _Blocks(self._outage, file, remote), modified_ns=file.modified_ns)

    def open_each(self, files: Iterable[SourceFile]) -> Iterator[FetchedFile | SourceFailed]:
        """Yield the opened object, or the SourceFailed of opening it, for each file in order.

        Many objects are requested at the same time.

        Raises:
            AccessDenied: The credentials are refused.
            AccessDenied, ServerFailed: The server failed or denied access for 20 objects in a row.
        """
        costed = ((file, bytes_when_open(file)) for file in files)
        for result in fetched(partial(open_or_error, self), costed):
            if isinstance(result, SourceFailed):
                self._outage.failed(result.__cause__)
            elif result.is_read:
                self._outage.ended()
            yield result


class _Blocks:
    """The bytes of a large object, in blocks. Each iteration requests them again.

    If the connection breaks, another request continues. Iteration raises SourceFailed if the object has changed,
    has vanished or cannot be read. It raises AccessDenied if the credentials are refused. It raises ServerFailed or
    AccessDenied if this is the server's twentieth failure in a row.
    """

    def __init__(self, outage: "_Outage", file: SourceFile, remote: RemoteObject) -> None:
        self._outage = outage
        self._file = file
        self._remote = remote

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._remote.blocks(0, self._file.size_bytes)
        except CafcatError as error:
            self._outage.failed(error)
            raise _failed(self._file, error) from error
        self._outage.ended()


class _Outage:
    """Counts objects that the server could not supply, to detect that the server is down."""

    def __init__(self) -> None:
        self._failed_in_a_row = 0

    def failed(self, cause: BaseException | None) -> None:
        """Count an object that could not be read. Raise `cause` if it is the server's twentieth failure in a row.

        Args:
            cause: Why the object could not be read. A ServerFailed or ObjectDenied is a failure of the server. Any
                other cause, such as a changed object, resets the counter: the server answered.
        """
        if not isinstance(cause, ServerFailed | ObjectDenied):
            self._failed_in_a_row = 0
            return
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= _OUTAGE:
            raise cause

    def ended(self) -> None:
        """Reset the counter: an object was read."""
        self._failed_in_a_row = 0


def _whole(file: SourceFile, content: bytes) -> FetchedFile:
    return FetchedFile(file, content, modified_ns=file.modified_ns)


def _failed(file: SourceFile, error: CafcatError) -> SourceFailed:
    """Return the SourceFailed for an error of one object. Raise the error itself if the credentials are refused."""
    path = printable(file.path)
    for kind, problem, message in _PROBLEMS:
        if isinstance(error, kind):
            return SourceFailed(message, path=path, problem=problem.value)
    if isinstance(error, StoreFailed | ObjectDenied):
        return SourceFailed(error.message, path=path, problem=ProblemKind.UNREADABLE.value)
    if isinstance(error, AccessDenied):
        raise error
    return SourceFailed(error.message, path=path, problem=ProblemKind.UNREADABLE.value)

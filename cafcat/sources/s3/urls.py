"""Single objects by s3://, gs:// or az:// URL, as they stand in a list of names."""

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING

from cafcat.errors import AccessDenied, CafcatError, NotFound, SourceFailed
from cafcat.model import ProblemKind, SourceFile
from cafcat.remote.access import S3Access
from cafcat.remote.address import BucketAddress, parse_bucket
from cafcat.remote.bucket import Bucket
from cafcat.remote.errors import ObjectDenied
from cafcat.sources.base import OpenFile
from cafcat.sources.kind import SourceContext
from cafcat.sources.names import printable, url_without_user
from cafcat.sources.roots import root_of

if TYPE_CHECKING:
    from cafcat.remote.answers import ObjectHead

__all__ = ["S3UrlFiles"]


class S3UrlFiles:
    """Opens single objects by the URLs in a list, in any number of buckets. Safe to share between threads."""

    def __init__(self, context: SourceContext) -> None:
        """Store the settings. No request is sent.

        Args:
            context: Provides the options in cafcat.toml for a URL, such as the endpoint of its server.
        """
        self._context = context
        self._lock = Lock()
        self._buckets: dict[tuple[object, ...], _Bucket] = {}

    def name_of(self, url: str) -> str:
        """Return the name of the object at a URL: its key. Raises InvalidInput if this is not such a URL."""
        return parse_bucket(url).key

    def shown(self, url: str) -> str:
        """Return the URL of an object for messages, without user and password. "?" and "#" are part of the key."""
        return url_without_user(url)

    def root_of(self, file: SourceFile) -> str:
        """Return the root of an object: the part of its URL that its name does not repeat, such as the bucket."""
        return root_of(file.locator, file.path)

    def look(self, file: SourceFile) -> SourceFile:
        """Request size, time and entity tag of an object, and return the file with these values.

        Raises:
            SourceFailed: The object is missing, access to it is denied, or the server fails.
            AccessDenied: The credentials are refused.
        """
        return self._bucket_of(file.locator).look(file)

    def open(self, file: SourceFile) -> OpenFile:
        """Open the version of the object that `look` found.

        Raises:
            SourceFailed: The object has changed, has vanished, or cannot be read.
            AccessDenied: The credentials are refused.
        """
        return self._bucket_of(file.locator).open(file)

    def _bucket_of(self, url: str) -> "_Bucket":
        address, options = parse_bucket(url)._replace(key=""), self._context.options_of(url)
        key = (address, *sorted(options.items()))
        with self._lock:
            if key not in self._buckets:
                self._buckets[key] = _Bucket(_connect(address, options))
            return self._buckets[key]


def _connect(address: BucketAddress, options: Mapping[str, str]) -> Bucket:
    """Return a connection to a bucket. This sends no request."""
    if address.scheme == "s3":
        from cafcat.remote.connection import S3Connection

        return S3Connection(address.bucket, S3Access.of(options))
    from cafcat.remote.clouds.connection import connect

    return connect(address, options)


class _Bucket:
    """Looks up and opens objects of one bucket. The locator of each SourceFile is the URL of its object."""

    def __init__(self, connection: Bucket) -> None:
        from cafcat.sources.s3.objects import S3Objects

        self._connection = connection
        self._objects = S3Objects(self._connection)

    def look(self, file: SourceFile) -> SourceFile:
        try:
            head = self._head(parse_bucket(file.locator).key)
        except CafcatError as error:
            if isinstance(error, AccessDenied) and not isinstance(error, ObjectDenied):
                raise
            kind = ProblemKind.VANISHED if isinstance(error, NotFound) else ProblemKind.UNREADABLE
            raise SourceFailed(error.message, path=printable(file.path), problem=kind.value) from error
        return file._replace(size_bytes=head.size_bytes, modified_ns=head.modified_ns, etag=head.etag)

    def open(self, file: SourceFile) -> OpenFile:
        return self._objects.open(file._replace(locator=parse_bucket(file.locator).key))

    def _head(self, key: str) -> "ObjectHead":
        """Return size, time and entity tag of an object, by a HEAD request.

        If the server denies access, a GET request for one byte follows. Only the answer to a GET has a document
        that shows whether the server refuses the credentials, or only access to this object.
        """
        from cafcat.remote.reading import RemoteObject

        remote = RemoteObject(self._connection, key)
        try:
            return remote.head()
        except ObjectDenied:
            remote.read_at(0, 1)
            raise

"""The protocol of connections to one bucket or container, by which objects of every server are read and listed."""

from typing import Any, Protocol

from cafcat.remote.answers import Answer, ObjectHead

__all__ = ["Bucket"]


class Bucket(Protocol):
    """A connection to one bucket of S3 or Google Cloud Storage, or to one container of Azure Blob Storage."""

    bucket: str
    """Name of the bucket or container."""
    ranges_are_200: bool
    """True once the server answered a request for a range with status 200 instead of 206."""

    @property
    def url(self) -> str:
        """URL of the bucket: "s3://bucket", "gs://bucket" or "az://container"."""

    @property
    def server_url(self) -> str:
        """URL of the server. It distinguishes buckets with the same name on different servers."""

    @property
    def objects(self) -> Any:
        """Client of obstore, which reads objects of the bucket."""

    @property
    def reads_versions(self) -> bool:
        """True if obstore reads a version of an object by its id, and reports a replaced version as missing.

        Otherwise the entity tag is a condition of the request.
        """

    @property
    def shows_cause(self) -> bool:
        """True if the answer to a GET request for one version shows whether the object is missing or replaced.

        Otherwise `head` finds the cause.
        """

    @property
    def lists_after_any_key(self) -> bool:
        """True if a listing that begins after a key does not cost the keys before it."""

    def tag_of(self, meta: Any) -> str | None:
        """Return the entity tag, as cafcat uses it, from the properties of an object that obstore returned."""

    def head(self, key: str, etag: str | None) -> ObjectHead:
        """Return size, time and entity tag of an object.

        Args:
            key: Key in the bucket.
            etag: Entity tag that the object must have. None: any.

        Raises:
            NotFound: There is no such object.
            Conflict: The object has another entity tag.
            AccessDenied, StoreFailed: The server refuses or fails.
        """

    def get(self, key: str, start_byte: int | None, end_byte: int | None, etag: str | None) -> Answer:
        """Send a GET request without obstore, and return the answer with an unread body.

        Args:
            key: Key in the bucket. Every key is allowed.
            start_byte: Offset of the first byte. None: the whole object.
            end_byte: Offset after the last byte.
            etag: Entity tag that the object must have. None: any.

        Raises:
            NotFound, Conflict, AccessDenied, StoreFailed: As `head`.
            OutOfRange: The range begins at or beyond the end of the object.
        """

    def list_page(self, **options: Any) -> Any:
        """List one page of keys. Options and result are those of `list_objects_v2` of boto3.

        Args:
            options: Prefix, Delimiter, MaxKeys, and StartAfter or ContinuationToken.

        Returns:
            The page: Contents (each with Key, Size, LastModified and ETag), IsTruncated and NextContinuationToken;
            with a Delimiter also CommonPrefixes (each with Prefix).
        """

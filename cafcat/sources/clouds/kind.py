"""Buckets of Google Cloud Storage and containers of Azure Blob Storage, and their objects, as kinds of sources."""

from typing import Final

from cafcat.remote.address import parse_bucket
from cafcat.sources.base import Source
from cafcat.sources.kind import SourceContext, SourceKind, UrlFiles

__all__ = ["CLOUD"]


class _CloudKind(SourceKind):
    """The kind of source of gs:// and az:// URLs: buckets, folders of buckets, and single objects in a list."""

    def open(self, url: str, context: SourceContext) -> Source:
        """Return the source of the objects of a bucket or container, or of a folder of it.

        "gs://bucket/a" names the object "a" and the objects below "a/", but not the object "ab". The listing
        continues where an interrupted run stopped.

        Raises:
            InvalidInput: This is not the URL of a bucket or container, or the storage account is not named.
            NotFound: There is no such bucket, object or folder.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        from cafcat.remote.clouds.connection import connect
        from cafcat.sources.s3.bucket import S3Source

        connection = context.connection(url, lambda: connect(parse_bucket(url), context.options_of(url)))
        return S3Source(
            url,
            connection,
            prefix=context.prefix,
            filter=context.filter,
            after=context.resume_position(connection.server_url) if context.part is None else None,
            part=context.part,
            own_urls=context.own_urls,
        )

    def url_files(self, context: SourceContext) -> UrlFiles:
        """Return the opener of single objects by their URLs. This sends no request."""
        from cafcat.sources.s3.urls import S3UrlFiles

        return S3UrlFiles(context)


CLOUD: Final = _CloudKind()

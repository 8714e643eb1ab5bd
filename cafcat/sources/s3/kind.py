"""S3 buckets and their objects as a kind of source."""

from typing import Final

from cafcat.remote.access import S3Access
from cafcat.remote.address import parse_s3
from cafcat.sources.base import Source
from cafcat.sources.kind import SourceContext, SourceKind, UrlFiles

__all__ = ["S3"]


class _S3Kind(SourceKind):
    """The kind of source of s3:// URLs: buckets, folders of buckets, and single objects in a list."""

    reads_inventories = True

    def open(self, url: str, context: SourceContext) -> Source:
        """Return the source of the objects of a bucket, or of a folder of it.

        "s3://bucket/a" names the object "a" and the objects below "a/", but not the object "ab". The listing
        continues where an interrupted run stopped, except in directory buckets and with an inventory.

        Raises:
            InvalidInput: This is not the URL of a bucket, or the inventory is not valid.
            NotFound: There is no such bucket, object, folder or inventory.
            AccessDenied, StoreFailed: The server refuses or fails.
            Conflict, Corrupt, NotInstalled, SourceFailed, Unsupported: The inventory cannot be used
                (`read_inventory`).
        """
        from cafcat.remote.connection import S3Connection
        from cafcat.sources.s3.bucket import S3Source, lists_in_order
        from cafcat.sources.s3.inventory import read_inventory

        bucket = parse_s3(url).bucket
        connection = context.connection(url, lambda: S3Connection(bucket, S3Access.of(context.options_of(url))))
        is_resumable = context.inventory is None and lists_in_order(bucket) and context.part is None
        return S3Source(
            url,
            connection,
            prefix=context.prefix,
            filter=context.filter,
            after=context.resume_position(connection.server_url) if is_resumable else None,
            part=context.part,
            own_urls=context.own_urls,
            inventory=None if context.inventory is None else read_inventory(context.inventory, context, bucket),
        )

    def url_files(self, context: SourceContext) -> UrlFiles:
        """Return the opener of single objects by their s3:// URLs. This sends no request."""
        from cafcat.sources.s3.urls import S3UrlFiles

        return S3UrlFiles(context)


S3: Final = _S3Kind()

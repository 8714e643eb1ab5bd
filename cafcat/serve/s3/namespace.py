"""Buckets: the top-level folders of the catalog, or one bucket with all paths."""

from cafcat.catalog.files.lookup import Lookup
from cafcat.model import Folder
from cafcat.serve.s3.answer import Answer, xml_answer
from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.options import S3Options
from cafcat.serve.s3.paging import MAX_KEYS, entries_after, max_keys, token_after, token_for
from cafcat.serve.s3.request import S3Request
from cafcat.serve.s3.visible import Visible
from cafcat.serve.s3.xml import document, texts

__all__ = ["OWNER", "OWNER_ID", "Namespace"]

OWNER_ID = "cafcat"
OWNER = texts([("ID", OWNER_ID), ("DisplayName", OWNER_ID)])
"""Content of the element Owner: all buckets and files have the same owner."""
_CREATED = "1970-01-01T00:00:00.000Z"
"""Time of every bucket: the catalog does not record when a folder got its first file."""


class Namespace:
    """Finds buckets, and the paths of their keys."""

    def __init__(self, files: Lookup, options: S3Options) -> None:
        """Create a namespace.

        Args:
            files: Look-ups in the catalog.
            options: Options of the server.
        """
        self._files = files
        self._options = options

    def base(self, bucket: str) -> str:
        """Return the text in front of each key of a bucket, in the paths of the catalog.

        Raises:
            S3Error: NoSuchBucket, if the one bucket has another name.
        """
        if self._options.bucket is None:
            return f"{bucket}/"
        if bucket != self._options.bucket:
            raise _no_such_bucket(bucket)
        return ""

    def check_visible(self, bucket: str, visible: Visible) -> None:
        """Check that a bucket exists, as far as a client may see.

        A bucket exists if the client may see one of its files. The one bucket always exists.

        Raises:
            S3Error: AccessDenied, if the client may see no file that could be in the bucket, and NoSuchBucket.
        """
        ranges = visible.ranges(self.base(bucket))
        if not ranges:
            raise S3Error("AccessDenied", "Access Denied")
        if self._options.bucket is None and not any(self._files.range_page(*range_, 1) for range_ in ranges):
            raise _no_such_bucket(bucket)

    def head(self, bucket: str, visible: Visible) -> Answer:
        """Return the answer to HeadBucket."""
        self.check_visible(bucket, visible)
        return Answer(200, {"content-length": "0", "x-amz-bucket-region": self._options.region})

    def location(self, bucket: str, visible: Visible) -> Answer:
        """Return the answer to GetBucketLocation. The constraint of us-east-1 is empty, as that of Amazon S3."""
        self.check_visible(bucket, visible)
        region = self._options.region
        return xml_answer(document("LocationConstraint", "" if region == "us-east-1" else region))

    def versioning(self, bucket: str, visible: Visible) -> Answer:
        """Return the answer to GetBucketVersioning: the catalog keeps former files."""
        self.check_visible(bucket, visible)
        return xml_answer(document("VersioningConfiguration", texts([("Status", "Enabled")])))

    def list_buckets(self, request: S3Request, visible: Visible) -> Answer:
        """Return the answer to ListBuckets: the buckets in which the client may see a file."""
        prefix = request.parameters.get("prefix", "")
        limit = max_keys(request, "max-buckets", 10 * MAX_KEYS)
        names, following = self._bucket_names(prefix, token_after(request), limit, visible)
        buckets = "".join(
            f"<Bucket>{texts([('Name', name), ('CreationDate', _CREATED)])}</Bucket>" for name in names
        )
        content = f"<Owner>{OWNER}</Owner><Buckets>{buckets}</Buckets>"
        values = [("Prefix", prefix or None), ("ContinuationToken", following and token_for(following))]
        return xml_answer(document("ListAllMyBucketsResult", content + texts(values)))

    def _bucket_names(self, prefix: str, after: str, limit: int, visible: Visible) -> tuple[list[str], str | None]:
        """Return names of buckets, and the text after which the next page begins; None at the end."""
        if not visible.ranges(""):
            raise S3Error("AccessDenied", "Access Denied")
        one = self._options.bucket
        if one is not None:
            return [one] if one.startswith(prefix) and not after else [], None
        names: list[str] = []
        while limit:
            ranges = visible.ranges(prefix)
            page, is_truncated = entries_after(
                self._files, ranges, prefix="", delimiter="/", after=after, limit=MAX_KEYS
            )
            for entry in page:
                if isinstance(entry, Folder):  # files at the top are in no bucket
                    names.append(entry.path[:-1])
                if len(names) > limit:
                    return names[:limit], f"{names[limit - 1]}/"
                after = entry.path
            if not is_truncated:
                break
        return names, None


def _no_such_bucket(bucket: str) -> S3Error:
    return S3Error("NoSuchBucket", "The specified bucket does not exist", {"BucketName": bucket})

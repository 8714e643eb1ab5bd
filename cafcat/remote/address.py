"""Parses URLs of buckets and objects as `aws s3` and `gcloud storage` write them, without percent-encoding."""

import re
from typing import Final, NamedTuple

from cafcat.errors import InvalidInput

__all__ = ["BucketAddress", "S3Address", "parse_bucket", "parse_s3"]

_S3 = re.compile(r"s3://([^/]*)(?:/(.*))?", re.IGNORECASE | re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_HINT = (
    "write s3://bucket or s3://bucket/prefix; the name of a bucket has at least 3 characters; "
    "credentials come from AWS' own configuration or environment"
)
_CLOUD: Final = re.compile(r"(gs|az)://([^/]*)(?:/(.*))?", re.IGNORECASE | re.DOTALL)
_NAMES: Final = {
    "gs": re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
    "az": re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]|\$(?:root|web|logs)"),
}
"""Names of buckets (Google Cloud Storage, "Bucket naming requirements") and of containers (Azure, "Naming and
referencing containers, blobs, and metadata")."""


class S3Address(NamedTuple):
    """The parts of an s3:// URL.

    Attributes:
        bucket: Name of the bucket.
        key: The text after the bucket and its slash: a key, or a prefix of keys; "" if there is none.
    """

    bucket: str
    key: str


class BucketAddress(NamedTuple):
    """The parts of the URL of a bucket, a container, or an object in one.

    Attributes:
        scheme: "s3", "gs" or "az".
        bucket: Name of the bucket or container.
        key: The text after the bucket and its slash: a key, or a prefix of keys; "" if there is none.
    """

    scheme: str
    bucket: str
    key: str

    @property
    def url(self) -> str:
        """URL of the bucket: "gs://bucket"."""
        return f"{self.scheme}://{self.bucket}"


def parse_s3(url: str) -> S3Address:
    """Return the parts of "s3://bucket/any key".

    Raises:
        InvalidInput: This is not the URL of a bucket, or it contains a NUL. The message does not show the text,
            which may contain credentials.
    """
    match = _S3.fullmatch(url)
    bucket, key = (match[1], match[2] or "") if match else ("", "")
    if not _BUCKET.fullmatch(bucket) or "\0" in key:
        raise InvalidInput("this is not the URL of a bucket", hint=_HINT)
    return S3Address(bucket, key)


def parse_bucket(url: str) -> BucketAddress:
    """Return the parts of "s3://bucket/any key", "gs://bucket/any key" or "az://container/any key".

    Raises:
        InvalidInput: This is not the URL of a bucket or container, or it contains a NUL. The message does not show
            the text, which may contain credentials.
    """
    match = _CLOUD.fullmatch(url)
    if match is None:
        return BucketAddress("s3", *parse_s3(url))
    scheme, name, key = match[1].lower(), match[2], match[3] or ""
    if not _NAMES[scheme].fullmatch(name) or "\0" in key:
        what = "container" if scheme == "az" else "bucket"
        hint = f"write {scheme}://{what} or {scheme}://{what}/prefix, without account, password and query"
        raise InvalidInput(f"this is not the URL of a {what}", hint=hint)
    return BucketAddress(scheme, name, key)

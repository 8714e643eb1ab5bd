"""Parses URLs of buckets and objects as `aws s3` writes them, without percent-encoding."""

import re
from typing import NamedTuple

from cafcat.errors import InvalidInput

__all__ = ["S3Address", "parse_s3"]

_S3 = re.compile(r"s3://([^/]*)(?:/(.*))?", re.IGNORECASE | re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_HINT = "write s3://bucket or s3://bucket/prefix; credentials come from AWS' own configuration or environment"


class S3Address(NamedTuple):
    """The parts of an s3:// URL.

    Attributes:
        bucket: Name of the bucket.
        key: The text after the bucket and its slash: a key, or a prefix of keys; "" if there is none.
    """

    bucket: str
    key: str


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

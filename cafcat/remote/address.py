"""URLs of buckets and of what is in them, as `aws s3` writes them: nothing in them is percent-encoded."""

import re
from typing import NamedTuple

from cafcat.errors import InvalidInput

__all__ = ["S3Address", "parse_s3"]

_S3 = re.compile(r"s3://([^/]*)(?:/(.*))?", re.IGNORECASE | re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_HINT = "write s3://bucket or s3://bucket/prefix; credentials come from AWS' own configuration or environment"


class S3Address(NamedTuple):
    """A bucket and the rest of the URL after its slash: a key or the beginning of keys, "" if there is none."""

    bucket: str
    key: str


def parse_s3(url: str) -> S3Address:
    """The parts of "s3://bucket/any key". Raises InvalidInput, which shows nothing of what it refuses: somebody may
    have put credentials there."""
    match = _S3.fullmatch(url)
    bucket, key = (match[1], match[2] or "") if match else ("", "")
    if not _BUCKET.fullmatch(bucket) or "\0" in key:
        raise InvalidInput("not the URL of a bucket", hint=_HINT)
    return S3Address(bucket, key)

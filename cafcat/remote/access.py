"""Whether something is on an S3 server, and how that is reached.

Without any of the options, AWS' own configuration says how (environment, ~/.aws/config).
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Addressing", "S3Access", "is_s3"]

Addressing = Literal["auto", "path", "virtual"]
"""Where the bucket's name stands in a URL: in its path, in its host name, or as boto3 chooses."""


def is_s3(name: str) -> bool:
    """Whether it is meant as the URL of a bucket, or of what is in one."""
    return name[:5].lower() == "s3://"


@dataclass(frozen=True, slots=True)
class S3Access:
    """Options of a connection; None leaves it to AWS' own configuration. Secrets are never among them.

    endpoint_url: URL of the server. region: as AWS names it. profile: name of a profile in AWS' configuration.
    """

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    addressing: Addressing = "auto"

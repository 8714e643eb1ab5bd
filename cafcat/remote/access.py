"""How an S3 server is reached.

Options that are not given are left to AWS' own configuration: the environment and ~/.aws/config.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

__all__ = ["Addressing", "S3Access", "is_s3"]

Addressing = Literal["auto", "path", "virtual"]
"""Where a request names the bucket: in the path of the URL, in the host name, or as boto3 chooses."""


def is_s3(text: str) -> bool:
    """Return True if a text begins like the URL of a bucket or of an object in one."""
    return text[:5].lower() == "s3://"


@dataclass(frozen=True, slots=True)
class S3Access:
    """Options of a connection to an S3 server. No option holds a secret.

    Attributes:
        endpoint_url: URL of the server; None to use AWS' own configuration.
        region: Region as AWS names it; None to use AWS' own configuration.
        profile: Name of a profile in AWS' configuration; None for the profile that this configuration chooses.
        addressing: Where a request names the bucket.
    """

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    addressing: Addressing = "auto"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Return the options that a table [stores.NAME] with checked values has. Its other keys are ignored."""
        known: dict[str, Any] = {name: options[name] for name in cls.__slots__ if name in options}
        return cls(**known)

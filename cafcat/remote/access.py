"""How an S3 server is reached. Without any of it, AWS' own configuration says (environment, ~/.aws/config)."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Addressing", "S3Access"]

Addressing = Literal["auto", "path", "virtual"]
"""Where the bucket's name stands in a URL: in its path, in its host name, or as boto3 chooses."""


@dataclass(frozen=True, slots=True)
class S3Access:
    """Options of a connection; None leaves it to AWS' own configuration. Secrets are never among them.

    endpoint_url: URL of the server. region: as AWS names it. profile: name of a profile in AWS' configuration.
    """

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    addressing: Addressing = "auto"

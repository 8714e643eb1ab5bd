"""Finds the URL of the S3 server without a client of boto3, which takes 0.1 s of CPU time to create."""

import os
import re
from typing import TYPE_CHECKING, Any, Final

from cafcat.remote.access import S3Access

if TYPE_CHECKING:
    import boto3

__all__ = ["known_endpoint"]

_PLAIN_URL: Final = re.compile(r"https?://(?=.{1,60}\Z)[a-z0-9]+(?:[.-][a-z0-9]+)*(?::[1-5]?\d{1,4})?")
"""URLs that boto3 accepts and does not change. It checks and changes others."""
_PLAIN_REGION: Final = re.compile(r"[a-z]+(?:-[a-z]+)*-\d")
_COMMERCIAL_REGION: Final = re.compile(r"(?:af|ap|ca|eu|il|me|mx|sa|us)-(?:north|south|east|west|central)+-\d")
"""Regions whose servers are below amazonaws.com. There are others with names of their own."""
_SECTIONS: Final = {"endpoint_url", "services"}
"""Keys of a profile that may name another server."""


def known_endpoint(session: "boto3.Session", access: S3Access) -> str | None:
    """Return the URL of the server that a client of boto3 would use; None if only a client can find it.

    For AWS itself, it may be another URL of the same domain: obstore needs none.

    Args:
        session: Has AWS' own configuration.
        access: Options that replace parts of it.
    """
    region = access.region or session.region_name
    if region and not _PLAIN_REGION.fullmatch(region):
        return None
    core: Any = session._session
    url = access.endpoint_url
    if not url:
        if core.get_config_variable("ignore_configured_endpoint_urls"):
            return None
        url = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if url:
        return url if _PLAIN_URL.fullmatch(url) else None
    is_elsewhere = _SECTIONS.intersection(core.get_scoped_config())
    return f"https://s3.{region}.amazonaws.com" if _is_commercial(region) and not is_elsewhere else None


def _is_commercial(region: str | None) -> bool:
    return region is not None and _COMMERCIAL_REGION.fullmatch(region) is not None

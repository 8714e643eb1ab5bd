"""Proof that an object in a bucket is the one that was uploaded (decision 0011).

A HEAD request decides. If the size and a checksum or entity tag are right, the object is the uploaded one. If only
the size is right, the object is read back once and compared by its CRC-64/NVME.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from cafcat.errors import Conflict
from cafcat.remote.connection import S3Connection
from cafcat.remote.errors import translated
from cafcat.remote.reading import RemoteObject, unquoted
from cafcat.stores.s3.server_checks import ServerCheck, ServerChecks
from cafcat.support.checksums import crc64nvme, to_base64

__all__ = ["Expected", "prove"]


class Expected(NamedTuple):
    """Properties that the object of a completed upload should have.

    Attributes:
        size_bytes: Size of the object in bytes.
        crc64nvme: CRC-64/NVME of the object.
        etags: Entity tags that the object may have: the tag in the answer to the completion, and the tag that S3
            computes from the parts' tags.
        has_promise: The server promised to check and store the CRC-64/NVME.
        parts_differ: The tag of some part was not the MD5 of its bytes.
        is_completed: The server confirmed the completion.
    """

    size_bytes: int
    crc64nvme: int
    etags: Collection[str | None]
    has_promise: bool
    parts_differ: bool
    is_completed: bool


def prove(connection: S3Connection, checks: ServerChecks, key: str, expected: Expected) -> str | None:
    """Return the entity tag of the object under a key, if it is the expected object.

    Args:
        connection: The bucket.
        checks: The checks that the server failed. Newly failed checks are added.
        key: Key in the bucket.
        expected: The properties of the uploaded object.

    Raises:
        NotFound: There is no object.
        Conflict: There is another object.
        StoreFailed: The server fails.
        AccessDenied: The server refuses the credentials.
    """
    name = f"{connection.url}/{key}"
    client: Any = connection.client
    with translated("look at", name):
        found = client.head_object(Bucket=connection.bucket, Key=key, ChecksumMode="ENABLED")
    etag = unquoted(found.get("ETag"))
    failing = _failing(found, etag, expected)
    is_ours = found["ContentLength"] == expected.size_bytes and (
        _may_trust(failing, checks, expected) or _read_back(connection, key, expected)
    )
    if not is_ours:
        message = f"{name} is not the object that was written: {found['ContentLength']:,} bytes, tag {etag}"
        raise Conflict(message, chunk=name)
    if expected.is_completed:
        for check in failing:
            checks.fail(check)
    return etag


def _failing(found: Any, etag: str | None, expected: Expected) -> list[ServerCheck]:
    """Return the checks that the object fails. The list is empty if the CRC-64/NVME is right."""
    checksum = found.get("ChecksumCRC64NVME")
    if checksum == to_base64(expected.crc64nvme):
        return []
    failing = []
    if expected.has_promise:  # otherwise the server may show a checksum of the parts' checksums
        failing.append(ServerCheck.CHECKSUM)
    if etag is None or etag not in expected.etags:
        failing.append(ServerCheck.ENTITY_TAG)
    if expected.parts_differ:
        failing.append(ServerCheck.PART_TAGS)
    return failing


def _may_trust(failing: Collection[ServerCheck], checks: ServerChecks, expected: Expected) -> bool:
    """Return True if the object is proven, or the failing checks are known to fail on this server.

    The second case also needs proof of the parts and the completion by other checks. A server is never trusted if
    the tags of parts prove nothing, or if it got no MD5 of the parts.
    """
    if not failing:
        return True
    is_proven = expected.is_completed and not expected.has_promise and not expected.parts_differ
    return is_proven and all(check in checks for check in failing)


def _read_back(connection: S3Connection, key: str, expected: Expected) -> bool:
    checksum = 0
    for block in RemoteObject(connection, key).blocks(0, expected.size_bytes):
        checksum = crc64nvme(block, checksum)
    return checksum == expected.crc64nvme

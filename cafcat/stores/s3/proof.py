"""Proof that an object in a bucket is the one that was uploaded (decision 0011).

A HEAD request shows the object's size, entity tag and perhaps its CRC-64/NVME. If the size is wrong, it is another
object. If the CRC-64/NVME is right, it is the uploaded one. If the server promised no CRC-64/NVME, a right entity
tag and right tags of the parts prove that, too. Otherwise the object is read back once, to compute its CRC-64/NVME.
An object with a wrong entity tag is not read back if the server is known to show wrong ones, the server confirmed
the completion, and each part was checked by its MD5.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from cafcat.errors import Conflict
from cafcat.remote.answers import unquoted
from cafcat.remote.connection import S3Connection
from cafcat.remote.errors import translated
from cafcat.remote.reading import RemoteObject
from cafcat.stores.s3.server_checks import ServerCheck, ServerChecks
from cafcat.support.checksums import crc64nvme, to_base64
from cafcat.support.traffic import TRAFFIC

__all__ = ["Expected", "prove"]


class Expected(NamedTuple):
    """Properties that the object of an upload should have, and those that the server promised and confirmed.

    Attributes:
        size_bytes: Size of the object in bytes.
        crc64nvme: CRC-64/NVME of the object.
        etags: Entity tags that the object may have: the tag in the answer to the completion, the tag that S3
            computes from the parts' tags, and the MD5 of the object. None for a tag that is not known.
        has_promise: True if the server promised to check and store the CRC-64/NVME.
        parts_differ: True if the tag of some part was not the MD5 of its bytes.
        is_completed: True if the server confirmed the completion.
    """

    size_bytes: int
    crc64nvme: int
    etags: Collection[str | None]
    has_promise: bool
    parts_differ: bool
    is_completed: bool


def prove(connection: S3Connection, checks: ServerChecks, key: str, expected: Expected) -> str | None:
    """Return the entity tag of the object under a key, if it is the expected object; None if it has no tag.

    Args:
        connection: The bucket.
        checks: The checks that the server failed. If the server confirmed the completion, the checks that the right
            object fails are added.
        key: Key in the bucket.
        expected: The properties of the uploaded object.

    Raises:
        NotFound: The bucket has no object with this key.
        Conflict: The object with this key is another one.
        StoreFailed: The server fails.
        AccessDenied: The server refuses the credentials.
    """
    name = f"{connection.url}/{key}"
    client: Any = connection.client
    with TRAFFIC.request(name), translated("look at", name):
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
    """Return the checks that the object fails; none if the server shows the right CRC-64/NVME."""
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
    """Return True if the object need not be read back.

    That is so if no check fails. It is also so if all failing checks are known to fail on this server, the server
    confirmed the completion, and the tag of each part was the MD5 of its bytes. If the server promised a
    CRC-64/NVME, the second case is impossible, because it got no MD5 of the parts.
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

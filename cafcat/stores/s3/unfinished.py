"""Lists and aborts unfinished multipart uploads."""

import contextlib
from typing import Final

from cafcat.errors import NotFound, StoreFailed
from cafcat.remote.connection import S3Connection
from cafcat.remote.errors import NotOffered, translated
from cafcat.stores.s3.server_checks import ServerCheck, ServerChecks

__all__ = ["abort_uploads", "check_reachable", "uploads_of"]

_ABORT_ROUNDS: Final = 5
"""Most times that the uploads of a key are listed and aborted."""


def abort_uploads(
    connection: S3Connection, checks: ServerChecks, key: str, upload_id: str | None, keep: str | None = None
) -> None:
    """Abort every upload of a key, except the one with the id `keep`.

    The uploads are listed again after each round, because a part that is being sent can keep an upload alive.
    Uploads that the server cannot list or abort stay; cafcat warns about such a server once.

    Args:
        connection: The bucket.
        checks: The checks that the server failed. Newly failed checks are added.
        key: Key in the bucket.
        upload_id: Id of an upload that is aborted first, without listing. None: there is none.
        keep: Id of an upload that stays. None: all are aborted.

    Raises:
        NotFound: There is no such bucket.
        StoreFailed: The server fails, or lists the same uploads again and again.
        AccessDenied: The server refuses the credentials.
    """
    if upload_id is not None:
        _abort(connection, checks, key, upload_id)
    for _ in range(_ABORT_ROUNDS):
        left = [found for name, found in uploads_of(connection, checks, key) if name == key and found != keep]
        if not left or ServerCheck.ABORT_UPLOADS in checks:
            return
        for found in left:
            _abort(connection, checks, key, found)
    raise StoreFailed(
        f"cannot remove the unfinished uploads of {connection.url}/{key}: the server still lists them after "
        f"{_ABORT_ROUNDS} attempts",
        hint="run cafcat recover later",
    )


def _abort(connection: S3Connection, checks: ServerChecks, key: str, upload_id: str) -> None:
    if ServerCheck.ABORT_UPLOADS in checks:
        return
    try:
        with contextlib.suppress(NotFound), translated("remove the upload of", f"{connection.url}/{key}"):
            connection.client.abort_multipart_upload(Bucket=connection.bucket, Key=key, UploadId=upload_id)
    except NotOffered:
        checks.fail(ServerCheck.ABORT_UPLOADS)


def uploads_of(connection: S3Connection, checks: ServerChecks, prefix: str) -> list[tuple[str, str]]:
    """Return key and id of every unfinished multipart upload whose key begins with a prefix.

    The result is empty for a server that cannot list uploads; cafcat warns about such a server once.

    Raises:
        NotFound: There is no such bucket.
        StoreFailed, AccessDenied: The server fails or refuses.
    """
    if ServerCheck.LIST_UPLOADS in checks:
        return []
    from botocore.exceptions import ClientError

    found: list[tuple[str, str]] = []
    try:
        with translated("list the uploads of", f"{connection.url}/{prefix}"):
            paginator = connection.client.get_paginator("list_multipart_uploads")
            try:
                for page in paginator.paginate(Bucket=connection.bucket, Prefix=prefix):
                    found += [(upload["Key"], upload["UploadId"]) for upload in page.get("Uploads", [])]
            except ClientError as error:
                if error.response["Error"]["Code"] != "NoSuchUpload":  # rclone: no upload since the server started
                    raise
    except NotOffered:
        checks.fail(ServerCheck.LIST_UPLOADS)
    return found


def check_reachable(connection: S3Connection) -> None:
    """Check with a HEAD request that the bucket exists and can be accessed.

    Raises:
        NotFound: There is no such bucket.
        StoreFailed: The server does not answer.
        AccessDenied: The server refuses the credentials.
    """
    with translated("look at", connection.url):
        connection.client.head_bucket(Bucket=connection.bucket)

"""Tests the features of an S3 server with test objects below the store's prefix, which are removed afterwards."""

import base64
import contextlib
import hashlib
import time
import uuid
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any, Final

from cafcat.errors import CafcatError, Conflict, ServerFailed, StoreFailed
from cafcat.remote.answers import unquoted
from cafcat.remote.errors import NotOffered, translated
from cafcat.stores.probing import Finding
from cafcat.stores.s3.server_checks import REMEDIES, ServerCheck
from cafcat.stores.s3.store import S3Store
from cafcat.stores.s3.unfinished import abort_uploads, uploads_of
from cafcat.support.quantities import plural

__all__ = ["S3Probe"]

_PART_BYTES: Final = 5 << 20
_TAIL: Final = b"the last part may be small"
_MOST_SKEW_SECONDS: Final = 300
"""Largest accepted difference between the clocks, in seconds: a third of that at which S3 refuses signatures."""
_UPLOAD_CHECKS: Final = (
    ("entity tag", ServerCheck.ENTITY_TAG),
    ("checksum of the object", ServerCheck.CHECKSUM),
    ("tags of parts", ServerCheck.PART_TAGS),
)


class S3Probe:
    """Tests the features of a store's server that cafcat uses. Failed checks are added to the store's `checks`."""

    def __init__(self, store: S3Store) -> None:
        """Prepare to test a store. The `checks` of the store must be empty: no check has failed yet."""
        self._store = store
        self._checks = store.checks
        self._connection = store.connection
        self._client: Any = store.connection.client
        self._bucket = store.connection.bucket
        self._folder = f"cafcat-check-{uuid.uuid4()}"
        self._keys: list[str] = []
        self._has_promise = False

    def findings(self) -> Iterator[Finding]:
        """Test one feature after the other, and yield a finding for each. The test objects are removed at the end.

        Raises:
            NotFound: There is no such bucket.
            AccessDenied: The server refuses the credentials.
            StoreFailed: The server does not answer.
        """
        try:
            yield self._multipart()
            for feature, check in _UPLOAD_CHECKS:
                yield self._by_check(feature, check)
            yield self._ranges()
            yield self._listing()
            yield self._order()
            yield self._part_checksums()
            yield self._conditional_writes()
            self._unfinished()
            yield self._by_check("list of uploads", ServerCheck.LIST_UPLOADS)
            yield self._by_check("abort of uploads", ServerCheck.ABORT_UPLOADS)
            yield self._versioning()
            yield self._clock()
        finally:
            self._clean()

    def _key(self, name: str) -> str:
        """Return the key of a test object in the store, which `_clean` removes at the end."""
        key = f"{self._folder}/{name}"
        if key not in self._keys:
            self._keys.append(key)
        return key

    def _where(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._store.bucket_key(self._key(name))}

    def _by_check(self, feature: str, check: ServerCheck) -> Finding:
        if check is ServerCheck.CHECKSUM and not self._has_promise:
            return Finding(feature, None, "the server does not promise CRC-64/NVME")
        return Finding(feature, check not in self._checks, remedy=REMEDIES[check] if check in self._checks else "")

    def _multipart(self) -> Finding:
        upload = self._store.create(self._key("parts"))
        self._has_promise = upload.has_promise
        try:
            upload.write(bytes(_PART_BYTES) + _TAIL)
            upload.commit()
        except Conflict as error:
            return Finding("multipart upload", False, error.message, is_needed=True)
        finally:
            upload.abort()
        parts = "CRC-64/NVME" if self._has_promise else "Content-MD5"
        return Finding("multipart upload", True, f"parts carry {parts}", is_needed=True)

    def _ranges(self) -> Finding:
        size_bytes = _PART_BYTES + len(_TAIL)
        key = self._key("parts")
        is_right = (
            self._store.read(key, _PART_BYTES, size_bytes) == _TAIL
            and self._store.read(key, 0, size_bytes) == bytes(_PART_BYTES) + _TAIL
        )
        detail = "the server answers with status 200 instead of 206" if self._connection.ranges_are_200 else ""
        remedy = "ranges are read with boto3, which costs more CPU time" if detail else ""
        return Finding("ranges", is_right, detail, remedy, is_needed=True)

    def _listing(self) -> Finding:
        self._put("é &+%20", b"")
        found = {item.key for item in self._store.list(f"{self._folder}/")}
        return Finding("listing", found == set(self._keys), is_needed=True)

    def _order(self) -> Finding:
        for name in ("b/c", "b.d"):
            self._put(name, b"")
        listed = [found.key for found in self._store.list(f"{self._folder}/")]
        works = listed == sorted(listed, key=str.encode)
        return Finding(
            "order of listing", works, "" if works else "not the order of the keys' bytes; cafcat does not need it"
        )

    def _put(self, name: str, data: bytes, **options: Any) -> None:
        with translated("write", self._store.locate(self._key(name))):
            self._client.put_object(**self._where(name), Body=data, **options)

    def _part_checksums(self) -> Finding:
        """Test whether the server refuses a part that is sent with the checksum of other bytes."""
        where = self._where("wrong part")
        other = hashlib.md5(b"other", usedforsecurity=False).digest()
        with translated("write", self._store.url):
            upload = {"UploadId": self._client.create_multipart_upload(**where)["UploadId"]}
        try:
            with translated("write", self._store.url):
                md5 = base64.b64encode(other).decode()
                answer = self._client.upload_part(**where, **upload, PartNumber=1, Body=_TAIL, ContentMD5=md5)
        except ServerFailed:  # a busy server, which may have the feature
            raise
        except StoreFailed:
            return Finding("checksums of parts", True, "a part with a wrong Content-MD5 is refused")
        finally:
            abort_uploads(self._connection, self._checks, where["Key"], upload["UploadId"])
        shows = unquoted(answer["ETag"]) == hashlib.md5(_TAIL, usedforsecurity=False).hexdigest()
        compared = "cafcat compares the tag of each part with the MD5 of its bytes"
        remedy = compared if shows else REMEDIES[ServerCheck.PART_TAGS]
        return Finding("checksums of parts", False, "a wrong Content-MD5 is ignored", remedy)

    def _conditional_writes(self) -> Finding:
        self._put("taken", b"first")
        where, feature = self._where("taken"), "conditional writes"
        with translated("write", self._store.url):
            upload = {"UploadId": self._client.create_multipart_upload(**where)["UploadId"]}
        try:
            with translated("write", self._store.url):
                part = self._client.upload_part(**where, **upload, PartNumber=1, Body=b"second")
                parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
                self._client.complete_multipart_upload(**where, **upload, MultipartUpload=parts, IfNoneMatch="*")
        except CafcatError as error:
            abort_uploads(self._connection, self._checks, where["Key"], upload["UploadId"])
            if isinstance(error, Conflict):
                return Finding(feature, True)
            if isinstance(error, ServerFailed):  # a busy server, which may have the feature
                raise
        self._checks.fail(ServerCheck.CONDITIONAL_WRITES)
        return self._by_check(feature, ServerCheck.CONDITIONAL_WRITES)

    def _unfinished(self) -> None:
        """Begin an upload, look for it in the server's list of uploads, and abort it.

        Checks that the server fails are added to the `checks` of the store.
        """
        where = self._where("unfinished")
        with translated("write", self._store.url):
            upload_id = self._client.create_multipart_upload(**where)["UploadId"]
        found = uploads_of(self._connection, self._checks, where["Key"])
        if (where["Key"], upload_id) not in found:
            self._checks.fail(ServerCheck.LIST_UPLOADS)
        abort_uploads(self._connection, self._checks, where["Key"], upload_id)

    def _versioning(self) -> Finding:
        try:
            with translated("look at", self._connection.url):
                status = self._client.get_bucket_versioning(Bucket=self._bucket).get("Status")
        except (NotOffered, StoreFailed) as error:
            return Finding("versioning", None, error.message)
        if status != "Enabled":
            return Finding("versioning", True, "off: removed objects free their space")
        remedy = "removed chunks stay as old versions: add a lifecycle rule that expires old versions"
        return Finding("versioning", False, "on", remedy)

    def _clock(self) -> Finding:
        with translated("look at", self._connection.url):
            answer = self._client.head_object(**self._where("taken"))
        text = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        if text is None:
            return Finding("clock", None, "the server does not show its time")
        skew = abs(time.time() - parsedate_to_datetime(text).timestamp())
        works = skew < _MOST_SKEW_SECONDS
        return Finding(
            "clock",
            works,
            f"{plural(round(skew), 'second')} apart",
            "" if works else "set the clock of this machine",
        )

    def _clean(self) -> None:
        for key in self._keys:
            with contextlib.suppress(CafcatError):
                self._store.delete(key)

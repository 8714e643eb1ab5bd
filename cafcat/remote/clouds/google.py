"""A bucket of Google Cloud Storage. Requests use the JSON API; obstore reads objects by the XML API.

The JSON API lists every key as it is, and its resumable uploads may have the condition that the object is new.
"""

import json
import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from cafcat.remote.address import BucketAddress
from cafcat.remote.answers import Answer, ObjectHead, nanoseconds
from cafcat.remote.clouds.access import CloudAccess
from cafcat.remote.clouds.connection import CloudConnection, range_header
from cafcat.remote.clouds.google_tokens import EMULATOR, GoogleTokens
from cafcat.remote.clouds.http import Request

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

__all__ = ["GoogleBucket", "StoredProperties"]

_SERVER: Final = "https://storage.googleapis.com"
_FIELDS: Final = "name,size,updated,generation,crc32c,metadata"
INCOMPLETE: Final = 308
"""Status of the answer to a part of a resumable upload that is not the last one."""
CANCELLED: Final = 499
"""Status of the answer to the cancellation of a resumable upload."""

StoredProperties = Mapping[str, Any]
"""Properties of an object in the JSON API: name, size, updated, generation, crc32c."""


class GoogleBucket(CloudConnection):
    """A connection to a bucket of Google Cloud Storage. The entity tag of an object is its generation."""

    def __init__(self, address: BucketAddress, access: CloudAccess) -> None:
        """Describe a connection. This sends no request.

        Args:
            address: The bucket.
            access: Options of the connection.

        Raises:
            InvalidInput: The URL of the server is not valid.
        """
        self._tokens = GoogleTokens(access, address.url)
        super().__init__(address, access, _server_url(access), self._tokens)

    @property
    def lists_after_any_key(self) -> bool:
        """True: a listing that begins after a key does not cost the keys before it."""
        return True

    @property
    def reads_versions(self) -> bool:
        """True: obstore reads an object by its generation."""
        return True

    def tag_of(self, meta: Any) -> str | None:
        """Return the generation from the properties of an object that obstore returned."""
        version: str | None = meta["version"]
        return version

    def properties(self, key: str) -> StoredProperties:
        """Return the properties of an object.

        Raises:
            NotFound: There is no such object.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        found = self.send(self._request("look at", "GET", key, query={"fields": _FIELDS}))
        answer: StoredProperties = found.json()
        return answer

    def head(self, key: str, etag: str | None) -> ObjectHead:
        """Return size, time and generation of an object: see `cafcat.remote.bucket.Bucket`."""
        found = self.properties(key)
        head = ObjectHead(int(found["size"]), _nanoseconds(found["updated"]), str(found["generation"]))
        return self._checked(key, head, etag)

    def get(self, key: str, start_byte: int | None, end_byte: int | None, etag: str | None) -> Answer:
        """Send a GET request, and return the answer: see `cafcat.remote.bucket.Bucket`."""
        condition = {"ifGenerationMatch": etag} if etag else {}
        # Without this header, the server unpacks objects that are stored with Content-Encoding: gzip.
        headers = {"accept-encoding": "gzip", **range_header(start_byte, end_byte)}
        query = {"alt": "media", **condition}
        return self._answer(
            key, self.send(self._request("read", "GET", key, query=query, headers=headers, streams=True))
        )

    def list_page(self, **options: Any) -> Any:
        """List one page of keys in the order of their bytes: see `cafcat.remote.bucket.Bucket`."""
        after, _, token = str(options.get("ContinuationToken", "\n")).rpartition("\n")
        after = options.get("StartAfter") or after
        query = {"prefix": options.get("Prefix", ""), "fields": f"nextPageToken,prefixes,items({_FIELDS})"}
        query |= {"maxResults": str(options.get("MaxKeys", 1000))}
        query |= {"startOffset": after} if after else {}
        query |= {"pageToken": token} if token else {}
        query |= {"delimiter": options["Delimiter"]} if "Delimiter" in options else {}
        url = f"{self.server_url}/storage/v1/b/{self.bucket}/o"
        found = self.send(Request("list", self.url, "GET", url, query=query)).json()
        following = found.get("nextPageToken")
        # startOffset is inclusive, and StartAfter is not.
        items = [_listed(item) for item in found.get("items", []) if item["name"] != after]
        folders = [{"Prefix": folder} for folder in found.get("prefixes", [])]
        page = {"Contents": items, "CommonPrefixes": folders, "IsTruncated": bool(following)}
        return page | ({"NextContinuationToken": f"{after}\n{following}"} if following else {})

    def delete(self, key: str) -> None:
        """Remove an object. A missing object is not an error."""
        self.send(self._request("remove", "DELETE", key, accepts=(404,)))

    def begin_upload(self, key: str, mark: str) -> str:
        """Begin a resumable upload of an object that must not exist yet, and return the id of the upload.

        Args:
            key: Key of the object.
            mark: Becomes metadata of the object, which shows that this upload made it.
        """
        query = {"uploadType": "resumable", "name": key, "ifGenerationMatch": "0"}
        headers = {"content-type": "application/json", "x-upload-content-type": "application/octet-stream"}
        found = self.send(
            self._upload(
                "POST",
                key,
                query=query,
                headers=headers,
                body=json.dumps({"metadata": {"cafcatupload": mark}}).encode(),
            )
        )
        location: str = found.headers["location"]
        return location.partition("upload_id=")[2].partition("&")[0]

    def send_part(self, key: str, upload_id: str, content_range: str, data: Any) -> "BaseHTTPResponse":
        """Send bytes of an object, and return the answer: status 308 until the upload is complete.

        Args:
            key: Key of the object.
            upload_id: Id of the upload.
            content_range: Value of Content-Range, as "bytes 0-99/*".
            data: The bytes.
        """
        query = {"uploadType": "resumable", "name": key, "upload_id": upload_id}
        return self.send(
            self._upload(
                "PUT", key, query=query, headers={"content-range": content_range}, body=data, accepts=(INCOMPLETE,)
            )
        )

    def cancel_upload(self, key: str, upload_id: str) -> None:
        """Cancel a resumable upload. An upload that does not exist any more is not an error."""
        query = {"uploadType": "resumable", "name": key, "upload_id": upload_id}
        accepted = (CANCELLED, 400, 404, 410)
        self.send(self._upload("DELETE", key, query=query, headers={"content-length": "0"}, accepts=accepted))

    def _upload(self, method: str, key: str, **more: Any) -> Request:
        url = f"{self.server_url}/upload/storage/v1/b/{self.bucket}/o"
        return Request("write", self.name_of(key), method, url, **more)

    def _request(self, doing: str, method: str, key: str, **more: Any) -> Request:
        return Request(doing, self.name_of(key), method, self.http_url(key), **more)

    def http_url(self, key: str) -> str:
        """Return the URL of an object in the JSON API."""
        return f"{self.server_url}/storage/v1/b/{self.bucket}/o/{quote(key, safe='')}"

    def _tag_in(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-goog-generation")

    def _new_objects(self) -> Any:
        from obstore.store import GCSStore

        credentials: dict[str, Any] = {"credential_provider": self._tokens.token}
        if self._tokens.is_anonymous:
            credentials = {"skip_signature": True}
        return GCSStore(self.bucket, base_url=self.server_url, **credentials, **self._obstore_options())


def _server_url(access: CloudAccess) -> str:
    emulator = os.environ.get(EMULATOR, "")
    if emulator and "://" not in emulator:
        emulator = f"http://{emulator}"
    return (access.endpoint_url or emulator or _SERVER).rstrip("/")


def _listed(item: Mapping[str, Any]) -> dict[str, Any]:
    modified = datetime.fromisoformat(item["updated"])
    return {
        "Key": item["name"],
        "Size": int(item["size"]),
        "LastModified": modified,
        "ETag": str(item["generation"]),
    }


def _nanoseconds(text: str) -> int:
    return nanoseconds(datetime.fromisoformat(text))

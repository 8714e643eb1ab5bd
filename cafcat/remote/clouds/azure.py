"""A container of Azure Blob Storage, by its REST API; obstore reads the blobs.

See "Blob service REST API" of Azure Storage.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from cafcat.errors import StoreFailed
from cafcat.remote.address import BucketAddress
from cafcat.remote.answers import Answer, ObjectHead, quoted, unquoted
from cafcat.remote.clouds.access import AzureSettings, CloudAccess
from cafcat.remote.clouds.azure_signing import AzureSigner
from cafcat.remote.clouds.connection import CloudConnection, modified_ns, range_header
from cafcat.remote.clouds.http import Request

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

__all__ = ["AzureContainer"]

UPLOAD_HEADER: Final = "x-ms-meta-cafcatupload"
"""Metadata of a blob with the id of the upload that made it."""


class AzureContainer(CloudConnection):
    """A connection to a container of Azure Blob Storage."""

    def __init__(self, address: BucketAddress, access: CloudAccess) -> None:
        """Describe a connection. This sends no request.

        Args:
            address: The container.
            access: Options of the connection.

        Raises:
            InvalidInput: The storage account is not named, or the URL of the server is not valid.
        """
        self._settings = AzureSettings.of(access)
        self._signer = AzureSigner(self._settings, address.url, is_anonymous=access.is_anonymous)
        super().__init__(address, access, self._settings.endpoint, self._signer)

    @property
    def lists_after_any_key(self) -> bool:
        """False: Azure lists from the first key of a prefix."""
        return False

    @property
    def reads_versions(self) -> bool:
        """False: the entity tag of a version is a condition of each request."""
        return False

    def tag_of(self, meta: Any) -> str | None:
        """Return the entity tag, without quotes, from the properties of a blob that obstore returned."""
        return unquoted(meta["e_tag"])

    def head(self, key: str, etag: str | None) -> ObjectHead:
        """Return size, time and entity tag of a blob: see `cafcat.remote.bucket.Bucket`."""
        headers = self.headers(key)
        head = ObjectHead(int(headers["content-length"]), modified_ns(headers), unquoted(headers.get("etag")))
        return self._checked(key, head, etag)

    def headers(self, key: str) -> Mapping[str, str]:
        """Return the headers with the properties of a blob. Raises NotFound if it is missing."""
        return self.send(self._request("look at", "HEAD", key)).headers

    def get(self, key: str, start_byte: int | None, end_byte: int | None, etag: str | None) -> Answer:
        """Send a GET request, and return the answer: see `cafcat.remote.bucket.Bucket`."""
        headers = range_header(start_byte, end_byte) | ({"if-match": quoted(etag)} if etag else {})
        return self._answer(key, self.send(self._request("read", "GET", key, headers=headers, streams=True)))

    def list_page(self, **options: Any) -> Any:
        """List one page of keys: see `cafcat.remote.bucket.Bucket`.

        Azure lists from the first key of a prefix. After StartAfter, pages before this key are listed and dropped.
        """
        after, _, marker = str(options.get("ContinuationToken", "\n")).rpartition("\n")
        after = options.get("StartAfter") or after
        more = {"delimiter": options["Delimiter"]} if "Delimiter" in options else {}
        found = self._list(options.get("Prefix", ""), marker, options.get("MaxKeys", 1000), more)
        following = found.findtext("NextMarker") or ""
        items = [blob for blob in map(_listed, found.iterfind("Blobs/Blob")) if _is_after(blob["Key"], after)]
        names = (folder.findtext("Name") or "" for folder in found.iterfind("Blobs/BlobPrefix"))
        folders = [{"Prefix": name} for name in names if _is_after(name, after) or after.startswith(name)]
        page = {"Contents": items, "CommonPrefixes": folders, "IsTruncated": bool(following)}
        return page | ({"NextContinuationToken": f"{after}\n{following}"} if following else {})

    def uncommitted(self, prefix: str) -> Iterable[str]:
        """Yield the keys of blobs that have blocks of unfinished uploads, and no committed content."""
        marker = ""
        while True:
            found = self._list(prefix, marker, 5000, {"include": "uncommittedblobs"})
            blobs, marker = map(_listed, found.iterfind("Blobs/Blob")), found.findtext("NextMarker") or ""
            # An empty blob looks the same, but has a block list: it was committed.
            yield from (blob["Key"] for blob in blobs if not blob["Size"] and self.has_blocks(blob["Key"]))
            if not marker:
                return

    def has_blocks(self, key: str) -> bool:
        """Return True if a blob has blocks that are not committed."""
        query = {"comp": "blocklist", "blocklisttype": "uncommitted"}
        found = self.send(self._request("list the blocks of", "GET", key, query=query, accepts=(404,)))
        return found.status != 404 and _parsed(found.data, self.url).find("UncommittedBlocks/Block") is not None

    def delete(self, key: str, etag: str | None = None) -> None:
        """Remove a blob and its snapshots, if it has this entity tag. A missing blob is not an error."""
        headers = {"x-ms-delete-snapshots": "include"} | ({"if-match": quoted(etag)} if etag else {})
        self.send(self._request("remove", "DELETE", key, headers=headers, accepts=(404,)))

    def put_block(self, key: str, block_id: str, data: Any, md5: bytes) -> None:
        """Send a block of a blob. The server refuses it if its bytes have another MD5."""
        headers = {"content-md5": base64.b64encode(md5).decode(), "content-type": "application/octet-stream"}
        query = {"comp": "block", "blockid": block_id}
        self.send(self._request("write", "PUT", key, query=query, headers=headers, body=data))

    def commit_blocks(self, key: str, block_ids: Iterable[str], upload_id: str) -> "BaseHTTPResponse":
        """Make a new blob of blocks, in this order. All other blocks of the blob are removed.

        Raises:
            Conflict: There is a blob with this key.
        """
        ids = "".join(f"<Uncommitted>{block}</Uncommitted>" for block in block_ids)
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{ids}</BlockList>'.encode()
        headers = {
            "if-none-match": "*",
            "content-type": "application/xml",
            "content-md5": base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode(),
            "x-ms-blob-content-type": "application/octet-stream",
            UPLOAD_HEADER: upload_id,
        }
        return self.send(
            self._request("write", "PUT", key, query={"comp": "blocklist"}, headers=headers, body=body)
        )

    def http_url(self, key: str) -> str:
        """Return the URL of a blob."""
        parts = (
            part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="~") for part in key.split("/")
        )
        return f"{self.server_url}/{self.bucket}/{'/'.join(parts)}"

    def _request(self, doing: str, method: str, key: str, **more: Any) -> Request:
        return Request(doing, self.name_of(key), method, self.http_url(key), **more)

    def _list(self, prefix: str, marker: str, most: int, more: Mapping[str, str]) -> Any:
        """Return the document with a page of the list."""
        query = {"restype": "container", "comp": "list", "maxresults": str(most), **more}
        query |= ({"prefix": prefix} if prefix else {}) | ({"marker": marker} if marker else {})
        url = f"{self.server_url}/{self.bucket}"
        return _parsed(self.send(Request("list", self.url, "GET", url, query)).data, self.url)

    def _new_objects(self) -> Any:
        from obstore.store import AzureStore

        settings = self._settings
        credentials: dict[str, Any] = {"credential_provider": self._signer.token}
        if self._access.is_anonymous:
            credentials = {"skip_signature": True}
        elif settings.key:
            credentials = {"account_key": settings.key}
        elif settings.sas:
            credentials = {"sas_key": settings.sas}
        where: dict[str, Any] = {"account_name": settings.account, "endpoint": settings.endpoint}
        return AzureStore(self.bucket, **where, **credentials, **self._obstore_options())


def _parsed(data: bytes, where: str) -> Any:
    from xml.etree import ElementTree

    try:
        return ElementTree.fromstring(data)  # noqa: S314 - the document comes from the configured server
    except ElementTree.ParseError as error:
        raise StoreFailed(f"cannot list {where}: the server sent a damaged list: {error}") from error


def _listed(blob: Any) -> dict[str, Any]:
    name = blob.find("Name")
    key = unquote(name.text or "") if name.get("Encoded") == "true" else name.text or ""
    modified = blob.findtext("Properties/Last-Modified")
    return {
        "Key": key,
        "Size": int(blob.findtext("Properties/Content-Length") or 0),
        "LastModified": parsedate_to_datetime(modified) if modified else None,
        "ETag": blob.findtext("Properties/Etag") or blob.findtext("Properties/ETag"),
    }


def _is_after(key: str, after: str) -> bool:
    return not after or key.encode() > after.encode()

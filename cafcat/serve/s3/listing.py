"""Lists keys: ListObjectsV2 and ListObjects (V1)."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from cafcat.catalog.files.lookup import Lookup
from cafcat.model import Folder, Location
from cafcat.serve.s3.answer import Answer, xml_answer
from cafcat.serve.s3.entity import entity_tag, iso_time, modified_seconds
from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.namespace import OWNER, Namespace
from cafcat.serve.s3.paging import delimiter_of, entries_after, invalid, max_keys, token_after, token_for
from cafcat.serve.s3.request import S3Request
from cafcat.serve.s3.visible import Visible
from cafcat.serve.s3.xml import document, texts

__all__ = ["KeyEncoding", "file_texts", "list_objects", "shown_prefixes"]

_CHECKSUM: Final = [("ChecksumAlgorithm", "CRC32C"), ("ChecksumType", "FULL_OBJECT")]
Values = list[tuple[str, object]]
"""Names and texts of XML elements. A value of None is left out."""


class KeyEncoding:
    """Writes keys as the client asked for: percent-encoded with `encoding-type=url`, else as they are."""

    def __init__(self, request: S3Request, base: str) -> None:
        """Read the parameter `encoding-type`.

        Args:
            request: The request.
            base: Text in front of each key in the paths of the catalog.

        Raises:
            S3Error: It has another value than "url".
        """
        self.kind = request.parameters.get("encoding-type")
        self._base = len(base)
        if self.kind not in (None, "url"):
            raise invalid("encoding-type", self.kind or "", "Invalid Encoding Method specified in Request")

    def text(self, text: str) -> str:
        """Return a part of a key."""
        return text if self.kind is None else quote(text, safe="/~")

    def key(self, path: str) -> str:
        """Return the key of a path."""
        return self.text(self.raw(path))

    def raw(self, path: str) -> str:
        """Return the key of a path, without percent-encoding."""
        return path[self._base :]


def list_objects(files: Lookup, namespace: Namespace, request: S3Request, bucket: str, visible: Visible) -> Answer:
    """Return the answer to ListObjectsV2 or ListObjects.

    Args:
        files: Look-ups in the catalog.
        namespace: Finds buckets.
        request: The request.
        bucket: Name of the bucket.
        visible: What the client may see.

    Raises:
        S3Error: AccessDenied, if the client may see no key with the requested prefix; NoSuchBucket; or a parameter
            is invalid.
    """
    base = namespace.base(bucket)
    prefix, delimiter, limit = base + request.parameters.get("prefix", ""), delimiter_of(request), max_keys(request)
    encoding, after = KeyEncoding(request, base), _after(request)
    ranges = visible.ranges(prefix)
    if not ranges:
        raise S3Error("AccessDenied", "Access Denied")
    entries, is_truncated = entries_after(
        files, ranges, prefix=prefix, delimiter=delimiter, after=after and base + after, limit=limit
    )
    if not entries:
        namespace.check_visible(bucket, visible)
    values: Values = [("Name", bucket), ("Prefix", encoding.key(prefix)), ("MaxKeys", limit)]
    values += [("Delimiter", encoding.text(delimiter) or None), ("EncodingType", encoding.kind)]
    values += [("IsTruncated", is_truncated), *_position(request, encoding, entries, is_truncated)]
    contents = "".join(_shown(entry, encoding, request) for entry in entries if isinstance(entry, Location))
    return xml_answer(document("ListBucketResult", texts(values) + contents + shown_prefixes(entries, encoding)))


def _is_v2(request: S3Request) -> bool:
    version = request.parameters.get("list-type", "1")
    if version not in ("1", "2"):
        raise invalid("list-type", version, "Invalid List Type")
    return version == "2"


def _after(request: S3Request) -> str:
    """Return the key or common prefix after which the requested page begins; "" for the first page."""
    if not _is_v2(request):
        return request.parameters.get("marker", "")
    return token_after(request) or request.parameters.get("start-after", "")


def _position(
    request: S3Request, encoding: KeyEncoding, entries: Sequence[Location | Folder], is_truncated: bool
) -> Values:
    """Return the elements with the start of this page and the start of the next page."""
    parameters, following = request.parameters, encoding.raw(entries[-1].path) if is_truncated else None
    if _is_v2(request):
        start, token = parameters.get("start-after"), parameters.get("continuation-token")
        return [
            ("KeyCount", len(entries)),
            ("StartAfter", start and encoding.text(start)),
            ("ContinuationToken", token),
            ("NextContinuationToken", following and token_for(following)),
        ]
    has_next = following is not None and "delimiter" in parameters
    next_marker = encoding.text(following) if has_next and following is not None else None
    return [("Marker", encoding.text(parameters.get("marker", ""))), ("NextMarker", next_marker)]


def _shown(location: Location, encoding: KeyEncoding, request: S3Request) -> str:
    has_owner = not _is_v2(request) or request.parameters.get("fetch-owner") == "true"
    owner = f"<Owner>{OWNER}</Owner>" if has_owner else ""
    return f"<Contents>{file_texts(location, encoding)}{owner}</Contents>"


def file_texts(location: Location, encoding: KeyEncoding) -> str:
    """Return the elements that describe a file in a listing."""
    values: Values = [("Key", encoding.key(location.path)), ("LastModified", iso_time(modified_seconds(location)))]
    values += [("ETag", entity_tag(location)), *_CHECKSUM]
    return texts([*values, ("Size", location.size_bytes), ("StorageClass", "STANDARD")])


def shown_prefixes(entries: Sequence[object], encoding: KeyEncoding) -> str:
    """Return the elements of the common prefixes among the entries of a listing."""
    return "".join(
        f"<CommonPrefixes>{texts([('Prefix', encoding.key(entry.path))])}</CommonPrefixes>"
        for entry in entries
        if isinstance(entry, Folder)
    )

"""Answers requests for one object: GetObject, HeadObject and GetObjectAttributes."""

from collections.abc import Iterator
from typing import Final

from cafcat.catalog.files.versions import DeleteMarker
from cafcat.errors import NotFound
from cafcat.model import Location
from cafcat.packed_files import PackedFiles
from cafcat.serve.s3.answer import Answer, xml_answer
from cafcat.serve.s3.conditions import ByteSpan, is_not_modified, requested_span
from cafcat.serve.s3.entity import (
    content_type,
    delete_marker_of,
    entity_tag,
    http_time,
    modified_seconds,
    parse_delete_marker,
    parse_version,
    shown_checksum,
    version_of,
)
from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.namespace import Namespace
from cafcat.serve.s3.paging import invalid
from cafcat.serve.s3.request import S3Request
from cafcat.serve.s3.visible import Visible
from cafcat.serve.s3.xml import document, texts

__all__ = ["Objects", "attributes"]

_OVERRIDES: Final = (
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
)
_ATTRIBUTES: Final = frozenset({"ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"})


class Objects:
    """Finds and reads objects."""

    def __init__(self, repository: PackedFiles, namespace: Namespace) -> None:
        """Create the object. This reads nothing yet.

        Args:
            repository: Finds and reads files.
            namespace: Finds buckets.
        """
        self._repository = repository
        self._namespace = namespace

    def find(self, request: S3Request, bucket: str, key: str, visible: Visible) -> Location:
        """Return the location of an object, or of the requested version of it.

        Raises:
            S3Error: AccessDenied, if the client may not see the object, whether it exists or not; NoSuchKey,
                NoSuchVersion or NoSuchBucket; MethodNotAllowed, if the version is a delete marker.
        """
        path, version = self._namespace.base(bucket) + key, request.parameters.get("versionId")
        if path not in visible:
            raise S3Error("AccessDenied", "Access Denied")
        if version is not None:
            self._check_delete_marker(request, path, version)
            return self._find_version(path, key, version)
        try:
            return self._repository.session.catalog.reading.files.locate(path)
        except NotFound:
            raise self._missing(bucket, path, key, visible) from None

    def _missing(self, bucket: str, path: str, key: str, visible: Visible) -> S3Error:
        """Return the error for a key without an object, which was perhaps removed."""
        removal = self._repository.session.catalog.versions.last_removal(path)
        if removal is None:
            self._namespace.check_visible(bucket, visible)
        headers = {} if removal is None else _delete_marker_headers(removal)
        return S3Error("NoSuchKey", "The specified key does not exist.", {"Key": key}, headers)

    def _check_delete_marker(self, request: S3Request, path: str, version: str) -> None:
        """Raise MethodNotAllowed if the version is a delete marker, which cannot be read."""
        named = parse_delete_marker(version)
        removal = named and self._repository.session.catalog.versions.find_removal(path, *named)
        if removal is None:
            return
        message = "The specified method is not allowed against this resource."
        details = {"Method": request.method, "ResourceType": "DeleteMarker"}
        headers = {"last-modified": http_time(removal.removed_seconds), "allow": ""}
        headers |= _delete_marker_headers(removal)
        raise S3Error("MethodNotAllowed", message, details, headers)

    def _find_version(self, path: str, key: str, version: str) -> Location:
        named = parse_version(version)
        if named is None and version != "null" and parse_delete_marker(version) is None:
            raise invalid("versionId", version, "Invalid version id specified")
        location = None if named is None else self._repository.session.catalog.versions.find(path, *named)
        if location is None:
            details = {"Key": key, "VersionId": version}
            raise S3Error("NoSuchVersion", "The specified version does not exist.", details)
        return location

    def read(self, request: S3Request, location: Location, *, is_signed: bool, data: bytes | None = None) -> Answer:
        """Return the answer to GetObject or HeadObject.

        The first bytes are read at once: if they cannot be read, the answer is an error.

        Args:
            request: The request.
            location: Where the file is.
            is_signed: False for a client without an access key, who cannot set headers of the answer.
            data: All bytes of the file, if they were read before.

        Raises:
            S3Error: A condition is not met, the range is not in the file, or a parameter is invalid.
            CafcatError: The file cannot be read.
        """
        headers = _headers(location)
        if is_not_modified(request, location):
            return Answer(304, headers)
        span = requested_span(request, location)
        if span is None and request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED":
            headers |= {"x-amz-checksum-crc32c": shown_checksum(location), "x-amz-checksum-type": "FULL_OBJECT"}
        headers |= _described(location, span)
        if request.pairs:
            headers |= _overrides(request, is_signed=is_signed)
        answer = Answer(200 if span is None else 206, headers)
        if data is not None:
            answer.body = data if span is None else data[span.start : span.end]
        elif request.method != "HEAD" and location.size_bytes:
            answer.body, answer.rest = self._body(location, span or ByteSpan(0, location.size_bytes))
        return answer

    def _body(self, location: Location, span: ByteSpan) -> tuple[bytes, Iterator[bytes] | None]:
        """Return the first bytes of a part of a file, and an iterator over the others, if there are others."""
        is_whole = span == (0, location.size_bytes)
        end = None if is_whole else span.end
        blocks = self._repository.stream_location(location, span.start, end)
        first = next(blocks, b"")
        return first, None if len(first) == span.end - span.start else blocks


def _delete_marker_headers(removal: DeleteMarker) -> dict[str, str]:
    return {"x-amz-delete-marker": "true", "x-amz-version-id": delete_marker_of(removal.location)}


def _headers(location: Location) -> dict[str, str]:
    """Return the headers that every answer about a file has."""
    headers = {"etag": entity_tag(location), "accept-ranges": "bytes"}
    headers["last-modified"] = http_time(modified_seconds(location))
    headers["x-amz-version-id"] = version_of(location)
    if location.modified_ns is not None:  # rclone reads the exact time here
        microseconds = location.modified_ns // 1000
        headers["x-amz-meta-mtime"] = f"{microseconds // 10**6}.{microseconds % 10**6:06}"
    return headers


def _described(location: Location, span: ByteSpan | None) -> dict[str, str]:
    """Return the headers that describe the body."""
    headers = {"content-type": content_type(location.path)}
    if span is None:
        return headers | {"content-length": str(location.size_bytes)}
    part = f"bytes {span.start}-{span.end - 1}/{location.size_bytes}"
    return headers | {"content-length": str(span.end - span.start), "content-range": part}


def _overrides(request: S3Request, *, is_signed: bool) -> dict[str, str]:
    """Return the headers that the client sets by `response-content-type` and similar parameters."""
    given = {name: request.parameters[name] for name in _OVERRIDES if name in request.parameters}
    if given and not is_signed:
        message = "Request specific response headers cannot be used for anonymous GET requests."
        raise S3Error("InvalidRequest", message)
    for name, value in given.items():
        if not value.isprintable() or not value.isascii():  # a line break would begin another header
            raise invalid(name, value, "The value of a header must be printable ASCII")
    return {name.removeprefix("response-"): value for name, value in given.items()}


def attributes(request: S3Request, location: Location) -> Answer:
    """Return the answer to GetObjectAttributes.

    Raises:
        S3Error: The header x-amz-object-attributes is missing, or names an unknown attribute; or a condition is not
            met.
    """
    given = request.headers.get("x-amz-object-attributes", "")
    names = {name.strip() for name in given.split(",")}
    if not names <= _ATTRIBUTES:
        raise invalid("x-amz-object-attributes", given, "Invalid attribute name specified.")
    headers = {"last-modified": http_time(modified_seconds(location)), "x-amz-version-id": version_of(location)}
    if is_not_modified(request, location):
        return Answer(304, headers | {"etag": entity_tag(location)})
    return xml_answer(document("GetObjectAttributesResponse", _attributes(location, names)), headers)


def _attributes(location: Location, names: set[str]) -> str:
    checksum = texts([("ChecksumCRC32C", shown_checksum(location)), ("ChecksumType", "FULL_OBJECT")])
    content = texts([("ETag", entity_tag(location).strip('"'))]) if "ETag" in names else ""
    content += f"<Checksum>{checksum}</Checksum>" if "Checksum" in names else ""
    content += texts([("StorageClass", "STANDARD")]) if "StorageClass" in names else ""
    return content + (texts([("ObjectSize", location.size_bytes)]) if "ObjectSize" in names else "")

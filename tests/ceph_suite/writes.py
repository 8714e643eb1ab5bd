"""Turns the writes of the suite into calls of `cafcat.Repository`. A bucket is a top-level folder."""

import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import cafcat
from cafcat.errors import InvalidInput
from cafcat.model import Location
from cafcat.serve.s3.entity import delete_marker_of, entity_tag, version_of
from cafcat.serve.s3.xml import element, texts
from tests.worlds.catalog_world import commit

__all__ = ["Answer", "Buckets", "Request"]

PARTS = ("acl", "versioning", "delete")
PUBLIC = ("public-read", "public-read-write")
FOREIGN = ("uploads", "uploadId", "tagging", "retention", "legal-hold", "append")


@dataclass
class Request:
    """A request of the suite.

    Attributes:
        signer: name of the access key that it claims to be signed with; "" for none.
        target: path and query as they were sent.
    """

    method: str
    target: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    signer: str

    @property
    def path(self) -> str:
        """The path of the object in the catalog; the name of the bucket if the request is for a bucket."""
        return f"{self.bucket}/{self.key}" if self.key else self.bucket


@dataclass
class Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Buckets:
    """The buckets of the suite, with what a catalog does not record: which are empty, and which ACL is public.

    Attributes:
        names: the buckets that were created, and not deleted since.
        public: buckets and objects with a canned ACL that lets anybody read them, by `Request.path`.
    """

    def __init__(self, repository: cafcat.Repository, owner: str) -> None:
        """Begin without buckets. owner: the access key that may write."""
        self.names: set[str] = set()
        self.public: set[str] = set()
        self._repository = repository
        self._owner = owner
        self._lock = threading.Lock()
        self._operations: dict[tuple[str, str, str], Callable[[Request], Answer]] = {
            ("PUT", "bucket", ""): self._create_bucket,
            ("PUT", "bucket", "acl"): self._set_acl,
            ("PUT", "bucket", "versioning"): lambda _: Answer(200),
            ("DELETE", "bucket", ""): self._delete_bucket,
            ("POST", "bucket", "delete"): self._delete_objects,
            ("PUT", "key", ""): self._put,
            ("PUT", "key", "acl"): self._set_acl,
            ("DELETE", "key", ""): self._delete_object,
        }

    def write(self, request: Request) -> Answer:
        """Perform a write, and return the answer."""
        part = next((name for name in PARTS if name in request.query), "")
        operation = self._operations.get((request.method, "key" if request.key else "bucket", part))
        is_copy = "x-amz-copy-source" in request.headers
        if operation is None or is_copy or not request.query.keys().isdisjoint(FOREIGN):
            return error(501, "NotImplemented")
        if request.signer != self._owner:
            return error(403, "AccessDenied")
        if request.bucket not in self.names and operation != self._create_bucket:
            return error(404, "NoSuchBucket")
        with self._lock:
            return operation(request)

    def is_public(self, request: Request) -> bool:
        return request.path in self.public

    def _create_bucket(self, request: Request) -> Answer:
        self.names.add(request.bucket)
        return self._set_acl(request)

    def _set_acl(self, request: Request) -> Answer:
        self.public.discard(request.path)
        if request.headers.get("x-amz-acl") in PUBLIC:
            self.public.add(request.path)
        return Answer(200)

    def _delete_bucket(self, request: Request) -> Answer:
        if self._repository.session.catalog.files.range_page(f"{request.bucket}/", f"{request.bucket}0", 1):
            return error(409, "BucketNotEmpty")
        self.names.discard(request.bucket)
        return Answer(204)

    def _put(self, request: Request) -> Answer:
        try:
            with self._repository.writer() as writer:
                writer.add(request.path, request.body)
        except InvalidInput:  # only an adopted archive has such names, for example "folder/"
            commit(self._repository, {request.path: request.body})
        self._set_acl(request)
        location = self._repository.locate(request.path)
        return Answer(200, {"etag": entity_tag(location), "x-amz-version-id": version_of(location)})

    def _delete_object(self, request: Request) -> Answer:
        removed = self._remove([(request.path, request.query.get("versionId"))])
        marker = removed.get(request.path)
        return Answer(204, {} if marker is None else {"x-amz-delete-marker": "true", "x-amz-version-id": marker})

    def _delete_objects(self, request: Request) -> Answer:
        items = ET.fromstring(request.body).findall("{*}Object")  # noqa: S314 - of our own client
        given = [(item.findtext("{*}Key", ""), item.findtext("{*}VersionId")) for item in items]
        removed = self._remove([(f"{request.bucket}/{key}", version) for key, version in given])
        content = ""
        for key, version in given:
            values = [("Key", key), ("VersionId", version)]
            values.append(("DeleteMarkerVersionId", removed.get(f"{request.bucket}/{key}")))
            content += f"<Deleted>{texts(values)}</Deleted>"
        return Answer(200, body=f"<DeleteResult>{content}</DeleteResult>".encode())

    def _remove(self, given: list[tuple[str, str | None]]) -> dict[str, str]:
        """Remove files, and return the names of their delete markers by path.

        A path is left alone if it has no file, or another version than the given one: a catalog has no operation
        that deletes a single former version.
        """
        found = self._repository.locate_many([path for path, _ in given])
        markers: dict[str, str] = {}
        for path, version in given:
            location = found[path]
            if isinstance(location, Location) and version in (None, version_of(location)):
                markers[path] = delete_marker_of(location)
        if markers:
            self._repository.rm(list(markers))
        return markers


def error(status: int, code: str) -> Answer:
    return Answer(status, body=f"<Error>{element('Code', code)}</Error>".encode())

"""Lists the present and former contents of keys, and their removals: ListObjectVersions."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from cafcat.catalog.files.scope import successor
from cafcat.catalog.files.versions import DeleteMarker, Version, Versions
from cafcat.model import Folder
from cafcat.serve.s3.answer import Answer, xml_answer
from cafcat.serve.s3.entity import delete_marker_of, iso_time, version_of
from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.listing import KeyEncoding, Values, file_texts, shown_prefixes
from cafcat.serve.s3.namespace import OWNER, Namespace
from cafcat.serve.s3.paging import Ranges, common_prefix, delimiter_of, invalid, max_keys, start_after
from cafcat.serve.s3.request import S3Request
from cafcat.serve.s3.visible import Visible
from cafcat.serve.s3.xml import document, texts
from cafcat.support.paging import FIRST_ROWS, more_rows
from cafcat.support.paths import end_of_prefix

__all__ = ["list_versions"]

_PAGE_ROWS: Final = 1000
Group = tuple[str, list[Version | DeleteMarker]]
"""A path, and all its versions and delete markers, the newest first."""


class _Listed(NamedTuple):
    """A version or delete marker in a listing.

    Attributes:
        entry: The version or delete marker.
        is_latest: True if a request without a version is answered by it.
    """

    entry: Version | DeleteMarker
    is_latest: bool

    @property
    def path(self) -> str:
        return self.entry.location.path

    @property
    def version(self) -> str:
        """Name of the version or delete marker."""
        location = self.entry.location
        return delete_marker_of(location) if isinstance(self.entry, DeleteMarker) else version_of(location)


def list_versions(
    versions: Versions, namespace: Namespace, request: S3Request, bucket: str, visible: Visible
) -> Answer:
    """Return the answer to ListObjectVersions.

    Args:
        versions: Queries on versions.
        namespace: Finds buckets.
        request: The request.
        bucket: Name of the bucket.
        visible: The paths that the client may see.

    Raises:
        S3Error: AccessDenied, if the client may see no key with the requested prefix; NoSuchBucket; or a parameter
            is invalid.
    """
    base, parameters = namespace.base(bucket), request.parameters
    prefix, delimiter, limit = base + parameters.get("prefix", ""), delimiter_of(request), max_keys(request)
    encoding, key, version = KeyEncoding(request, base), parameters.get("key-marker", ""), _version_marker(request)
    ranges = visible.ranges(prefix)
    if not ranges:
        raise S3Error("AccessDenied", "Access Denied")
    page = _Page(prefix, delimiter, key and base + key, version)
    entries, is_truncated = page.entries(versions, ranges, limit)
    if not entries:
        namespace.check_visible(bucket, visible)
    values: Values = [("Name", bucket), ("Prefix", encoding.key(prefix)), ("MaxKeys", limit)]
    values += [("Delimiter", encoding.text(delimiter) or None), ("EncodingType", encoding.kind)]
    values += [("KeyMarker", encoding.text(key)), ("VersionIdMarker", version), ("IsTruncated", is_truncated)]
    content = texts(values + (_next(entries[-1], encoding) if is_truncated else []))
    content += "".join(_shown(entry, encoding) for entry in entries if isinstance(entry, _Listed))
    return xml_answer(document("ListVersionsResult", content + shown_prefixes(entries, encoding)))


def _version_marker(request: S3Request) -> str:
    marker = request.parameters.get("version-id-marker", "")
    if marker and not request.parameters.get("key-marker"):
        message = "A version-id marker cannot be specified without a key marker."
        raise invalid("version-id-marker", marker, message)
    return marker


def _next(last: _Listed | Folder, encoding: KeyEncoding) -> Values:
    following: Values = [("NextKeyMarker", encoding.key(last.path))]
    return following if isinstance(last, Folder) else [*following, ("NextVersionIdMarker", last.version)]


def _shown(listed: _Listed, encoding: KeyEncoding) -> str:
    values = texts([("VersionId", listed.version), ("IsLatest", listed.is_latest)])
    owner = f"<Owner>{OWNER}</Owner>"
    if isinstance(listed.entry, Version):
        return f"<Version>{file_texts(listed.entry.location, encoding)}{values}{owner}</Version>"
    key, time = encoding.key(listed.path), iso_time(listed.entry.removed_seconds)
    return f"<DeleteMarker>{texts([('Key', key), ('LastModified', time)])}{values}{owner}</DeleteMarker>"


class _Page:
    """A page of versions, delete markers and common prefixes."""

    def __init__(self, prefix: str, delimiter: str, key_marker: str, version_marker: str) -> None:
        """Create the page that begins after a version.

        Args:
            prefix: Text at the start of all listed paths, in which no delimiter is looked for.
            delimiter: Text at which common prefixes end; "" for no common prefixes.
            key_marker: Path or common prefix after which the page begins; "" for the first page.
            version_marker: Version of this path after which the page begins; "" for the next path.
        """
        self._prefix = prefix
        self._delimiter = delimiter
        self._key_marker = key_marker
        self._version_marker = version_marker
        self._bound = key_marker if version_marker else start_after(key_marker, prefix, delimiter)

    def entries(self, versions: Versions, ranges: Ranges, limit: int) -> tuple[list[_Listed | Folder], bool]:
        """Return the entries of the page, and True if there are more of them.

        Args:
            versions: Queries on versions.
            ranges: The paths that are listed.
            limit: Largest number of entries.
        """
        entries: list[_Listed | Folder] = []
        for low, high in ranges if limit else ():
            for group in self._groups(versions, low, high):
                entries += self._entries_of(group)
                if len(entries) > limit:
                    return entries[:limit], True
        return entries, False

    def _groups(self, versions: Versions, low: str, high: str | None) -> Iterator[Group]:
        """Yield the paths of a range with all their versions. Paths below `_bound`, which may rise, are skipped.

        The first pages after a common prefix are small, because the next path may have a common prefix, too.
        """
        following: str | None = max(low, self._bound)
        rows = FIRST_ROWS
        while following is not None and (high is None or following < high):
            page = versions.page(following, high, rows)
            for path, group in groupby(page.versions, lambda version: version.location.path):
                if path >= self._bound:
                    yield path, list(group)
            has_skipped = page.following is not None and page.following < self._bound
            rows = FIRST_ROWS if has_skipped else more_rows(rows, _PAGE_ROWS)
            following = page.following and max(page.following, self._bound)

    def _entries_of(self, group: Group) -> Sequence[_Listed | Folder]:
        path, versions = group
        folder = common_prefix(path, self._prefix, self._delimiter)
        if folder is not None:
            self._bound = end_of_prefix(folder) or successor(path)
            return [Folder(folder)]
        self._bound = successor(path)
        listed = [_listed(number, entry) for number, entry in enumerate(versions)]
        names = [entry.version for entry in listed]
        is_marked = path == self._key_marker and self._version_marker in names
        return listed[names.index(self._version_marker) + 1 :] if is_marked else listed


def _listed(number: int, entry: Version | DeleteMarker) -> _Listed:
    """Return an entry of a path, with its number: the newest has 0."""
    return _Listed(entry, entry.is_live if isinstance(entry, Version) else number == 0)

"""A bucket, or the objects below a prefix of it, as a source."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Final

from cafcat.errors import NotFound, SourceFailed
from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.remote.address import parse_bucket
from cafcat.remote.answers import nanoseconds, unquoted
from cafcat.remote.bucket import Bucket
from cafcat.remote.errors import translated
from cafcat.sources.base import ListedPage
from cafcat.sources.cutting import Level, cut_tree
from cafcat.sources.fetched import FetchedFile
from cafcat.sources.filter import PathFilter
from cafcat.sources.names import check_name, folder_prefix, member_name, prefixed, printable
from cafcat.sources.parts import WHOLE, Part, number_parts
from cafcat.sources.roots import root_of
from cafcat.sources.s3.inventory import Inventory, InventoryRow
from cafcat.sources.s3.objects import S3Objects
from cafcat.support.traffic import TRAFFIC

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import ListObjectsV2OutputTypeDef as Page

__all__ = ["S3Source", "lists_in_order"]

UNORDERED: Final = "--x-s3"
"""Suffix of the names of directory buckets (Amazon S3 API Reference, ListObjectsV2)."""
PAGE_KEYS: Final = 1000
"""Most keys that a server lists at once (Amazon S3 API Reference, ListObjectsV2)."""


def lists_in_order(bucket: str) -> bool:
    """Return True if a bucket lists its keys in order, so that a listing can be resumed: not a directory bucket."""
    return not bucket.endswith(UNORDERED)


class S3Source:
    """The objects of a bucket, or those below a prefix of it, as a source: of S3, Google Cloud Storage or Azure.

    They come in the order of the listing, which is the byte order of keys except in directory buckets, or in the
    order of the inventory. The name of an object in the catalog is its key, after `prefix`. An object is read only
    in the version of the listing or inventory, which its entity tag shows. The listing can begin after a key, if an
    earlier run has finished with the objects before it.
    """

    def __init__(
        self,
        url: str,
        connection: Bucket,
        *,
        prefix: str = "",
        filter: PathFilter | None = None,
        after: str | None = None,
        part: Part | None = None,
        own_urls: Sequence[str] = (),
        inventory: Inventory | None = None,
    ) -> None:
        """Request the first page of the listing, unless there is an inventory, or only a part is listed.

        Args:
            url: "s3://bucket"; "s3://bucket/folder/" for the objects of the folder; "s3://bucket/folder" for these
                and the object with this key.
            connection: Connection to the bucket.
            prefix: Folder of the catalog that the keys are put into.
            filter: Which objects to ingest. None: all.
            after: Key after which the listing begins. None: the listing begins at its start.
            part: The part of the bucket that is listed: a range of keys. With an inventory, which was opened for
                the part already, it is not used. None: all objects.
            own_urls: URLs of cafcat's own stores. Objects that cafcat wrote there are not ingested.
            inventory: The objects of the bucket, in place of a listing.

        Raises:
            NotFound: There is no such bucket, object or folder.
            AccessDenied, StoreFailed: The server refuses or fails.
        """
        address = parse_bucket(url)
        key = address.key
        self.name = printable(url)
        self._connection = connection
        self._objects = S3Objects(connection)
        self._key = key
        self._folder = folder_prefix(key) if not key.endswith("/") else key
        self._prefix = folder_prefix(member_name(prefix)[0])
        self._filter = filter
        self._after = after if part is None else part.after
        self._part = WHOLE if part is None or inventory is not None else part
        self._own = [
            _chunk_keys(own) for own in own_urls if own == address.url or own.startswith(f"{address.url}/")
        ]
        self._inventory = inventory
        is_whole = inventory is None and after is None and part is None and lists_in_order(address.bucket)
        self.catalog_folder = folder_prefix(prefixed(prefix, key.strip("/"))) if is_whole else None
        """Folder of the catalog whose files this source lists completely, with a slash at its end.

        None if the source has an inventory, does not list in order, or lists only a part (`WholeFolderSource`).
        """
        self._first_page: Page | None = None
        if inventory is None and part is None:
            self._first_page = self._look()

    def cut(self, part: Part, wanted: int) -> Sequence[Part]:
        """Cut a range of keys into smaller ranges, by listing some folders of the bucket side by side.

        An inventory is cut into groups of its data files. A directory bucket, which has no order, is one part, and
        so is a container of Azure, which can be listed only from its beginning.

        Raises:
            AccessDenied, NotFound, StoreFailed: The server refuses or fails.
        """
        if self._inventory is not None:
            return number_parts(part, self._inventory.file_count, wanted)
        if not lists_in_order(self._connection.bucket) or not self._connection.lists_after_any_key:
            return [part]
        return cut_tree(_KeyTree(self, self._list), self._folder, part, wanted)

    @property
    def edition(self) -> str:
        """That of the inventory; "" without one, because keys are the same in each listing."""
        return "" if self._inventory is None else self._inventory.edition

    def root_of(self, file: SourceFile) -> str:
        """Return the root of an object: the URL of its bucket on the server, and `prefix` if it is not empty."""
        return self._root_of(file.locator, file.path)

    @property
    def root(self) -> str:
        """Root of all objects (`root_of`)."""
        return self._root_of("any", f"{self._prefix}any")

    def _root_of(self, key: str, path: str) -> str:
        return root_of(f"{self._connection.server_url}/{self._connection.bucket}/{key}", path)

    def includes(self, path: str) -> bool:
        """Return False if the filter excludes the object of this catalog path."""
        relative = path.removeprefix(self._prefix).removeprefix(self._folder)
        return self._filter is None or self._filter.includes_with_folders(relative)

    def has(self, path: str) -> bool:  # noqa: ARG002 - part of the protocol
        """Return False: the listing of a bucket has every object that existed before it began."""
        return False

    def position_of(self, file: SourceFile) -> str | None:
        """Return the position after a file, from which a later run continues the listing: the key of its object.

        None for an inventory and for a directory bucket, which have no order.
        """
        is_ordered = self._inventory is None and lists_in_order(self._connection.bucket)
        return file.locator if is_ordered else None

    def files(self) -> Iterator[SourceFile | FileProblem]:
        """Yield the file for every object that the filter includes, or a problem if it cannot be ingested.

        Raises:
            AccessDenied, NotFound, StoreFailed: The listing breaks off.
            Conflict, Corrupt, InvalidInput, SourceFailed: The inventory was replaced, is damaged or not valid, or
                cannot be read.
        """
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[Sequence[SourceFile | FileProblem]]:
        """Yield the files and problems of `files()` in lists, one for each page of the listing.

        A page of an inventory has 1,000 rows. A list is empty if all objects of its page are excluded. An ingest
        that dies can continue at the page of its last commit, without listing many pages again.
        """
        for rows in self._pages_of_rows():
            ours = list(takewhile(lambda row: not self._part.is_before(row.key), rows))
            items = (self._item(row) for row in ours if self._is_ours(row.key))
            yield [item for item in items if item is not None]
            if len(ours) < len(rows):
                return

    @property
    def top_folder(self) -> str | None:
        """The prefix of the keys of all objects; None with an inventory, or if keys are not listed in order."""
        return self._folder if self._inventory is None and lists_in_order(self._connection.bucket) else None

    def page(self, folder: str, after: str | None = None) -> ListedPage:
        """Return the objects and prefixes of a page of the listing with the delimiter "/".

        Args:
            folder: A prefix of keys, with "/" at its end unless it is empty.
            after: Only list keys after this one.

        Raises:
            AccessDenied, NotFound, StoreFailed: The server refuses or fails.
        """
        page = self._list(Prefix=folder, Delimiter="/", MaxKeys=PAGE_KEYS, **_start(after))
        rows = [_row(found) for found in page.get("Contents", [])]
        folders = [found["Prefix"] for found in page.get("CommonPrefixes", [])]
        items = (self._item(row) for row in rows)
        names = sorted([row.key for row in rows] + folders, key=lambda name: name.encode("utf-8", "surrogatepass"))
        return ListedPage([item for item in items if item is not None], folders, names, not page.get("IsTruncated"))

    def open(self, file: SourceFile) -> FetchedFile:
        """Open an object that was listed.

        Raises:
            SourceFailed: The object has changed since it was listed, has vanished, or cannot be read.
            AccessDenied: The credentials are refused.
        """
        return self._objects.open(file)

    def open_each(self, files: Iterable[SourceFile]) -> Iterator[FetchedFile | SourceFailed]:
        """Yield the opened object, or the SourceFailed of opening it, for each file in order.

        Many objects are requested at the same time.

        Raises:
            AccessDenied: The credentials are refused.
            AccessDenied, ServerFailed: The server failed or denied access for 20 objects in a row.
        """
        return self._objects.open_each(files)

    def _item(self, row: InventoryRow) -> SourceFile | FileProblem | None:
        if any(own.fullmatch(row.key) for own in self._own):
            message = "an object in a store of cafcat itself is not ingested"
            return FileProblem(printable(row.key), ProblemKind.OWN, message)
        relative = row.key.removeprefix(self._folder) if row.key != self._key else row.key.rpartition("/")[2]
        if self._filter is not None and not self._filter.includes(relative):
            return None
        path = self._prefix + row.key
        if refused := check_name(path):
            return FileProblem(printable(path), ProblemKind.NAME, refused)
        return SourceFile(path, row.size_bytes, row.modified_ns, row.key, row.etag)

    def _pages_of_rows(self) -> Iterator[Sequence[InventoryRow]]:
        if self._inventory is None:
            yield from (list(map(_row, page.get("Contents", []))) for page in self._pages())
            return
        rows = iter(self._inventory)
        while page := list(islice(rows, PAGE_KEYS)):
            yield page

    def _is_ours(self, key: str) -> bool:
        return key == self._key or key.startswith(self._folder)

    def _pages(self) -> Iterator["Page"]:
        """Yield the pages of the listing. Each page is requested while the caller processes the page before it."""
        page, self._first_page = self._first_page or self._look(), None
        with ThreadPoolExecutor(1, thread_name_prefix="cafcat-list") as pool:
            while page.get("IsTruncated") and not self._is_past_the_part(page):
                following = pool.submit(self._page, ContinuationToken=page["NextContinuationToken"])
                yield page
                page = following.result()
        yield page

    def _is_past_the_part(self, page: "Page") -> bool:
        """Return True if a page ends after the end of the part, so that no further page is needed."""
        rows = page.get("Contents", [])
        return bool(rows) and self._part.is_before(_row(rows[-1]).key)

    def _look(self) -> "Page":
        """Request the first page of the listing. Raises NotFound if the bucket has no such object or folder.

        The object with exactly this key comes before those of the folder. Keys between them in byte order ("a",
        "a-b", "a/b") do not belong to the source, so two requests are sent.
        """
        exact: list[Any] = []
        if self._key and not self._key.endswith("/") and (self._after or "") < self._key:
            answer = self._list(Prefix=self._key, MaxKeys=1)
            exact = [found for found in answer.get("Contents", []) if found["Key"] == self._key]
        page = self._page(**_start(self._after))
        is_whole = self._after is None and self._part == WHOLE
        if self._key and not exact and not page.get("Contents") and is_whole:
            raise NotFound(f"{self.name}: there is no such object or folder", hint="check the URL")
        page["Contents"] = exact + page.get("Contents", [])
        return page

    def _page(self, **start: str) -> "Page":
        return self._list(Prefix=self._folder, MaxKeys=PAGE_KEYS, **start)

    def _list(self, **options: Any) -> "Page":
        with TRAFFIC.request(self._connection.url), translated("list", self.name):
            page: Page = self._connection.list_page(**options)
            return page


class _KeyTree:
    """The keys of a bucket as a NameTree."""

    def __init__(self, source: S3Source, list_page: "Callable[..., Page]") -> None:
        """Create the tree.

        Args:
            source: The source.
            list_page: Requests a page of its listing, with the parameters of ListObjectsV2.
        """
        self._source = source
        self._list = list_page

    def level(self, folder: str, after: str | None) -> Level:
        """Return the first names directly in a folder, at most 1,000."""
        page = self._source.page(folder, after)
        return Level(page.names, page.is_last)

    def next_name(self, folder: str, after: str) -> str | None:
        """Return the first key below a folder after a text; None if there is none."""
        # Google lists the key `after`, too, which the connection leaves out.
        found = self._list(Prefix=folder, MaxKeys=2, **_start(after)).get("Contents", [])
        return found[0]["Key"] if found else None


def _start(after: str | None) -> dict[str, str]:
    return {"StartAfter": after} if after else {}


def _row(found: Any) -> InventoryRow:
    return InventoryRow(
        found["Key"], found["Size"], nanoseconds(found["LastModified"]), unquoted(found.get("ETag"))
    )


def _chunk_keys(store_url: str) -> re.Pattern[str]:
    """Return a pattern for the keys that cafcat writes into a store.

    They are <uuid>.<format> for a chunk. The names of objects beside the chunks have a uuid, too.
    """
    prefix = re.escape(folder_prefix(parse_bucket(store_url).key))
    uuid = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    return re.compile(rf"{prefix}({uuid}\.\w+|(journal|backups)/\w+-{uuid}\.\w+|catalogs/{uuid}\.json)")

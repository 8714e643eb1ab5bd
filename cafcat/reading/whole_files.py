"""Reads many whole files with little work for each: what `read_many` does nearly always.

The catalog returns the files of a chunk as a few lists, not as an object for each file, and Python's built-in
functions work on whole lists.
"""

from collections.abc import Iterable, Iterator, Sequence

from cafcat.model import ChunkFiles, Location
from cafcat.reading.coalescing import coalescing_of
from cafcat.reading.lookup import PathLookup
from cafcat.reading.replicas import FAILURES
from cafcat.reading.request import ReadRequest
from cafcat.stores.base import Store
from cafcat.support.checksums import crc32c_of
from cafcat.support.paths import is_text

__all__ = ["contents_of", "locate_whole", "parts_of", "requests_of"]


def locate_whole(files: PathLookup, paths: Sequence[str]) -> list[ChunkFiles] | None:
    """Return the files with exactly these paths by chunk, in the order of stores and archives. Costs one query.

    Args:
        files: Finds the files.
        paths: Their paths, as the caller gave them.

    Returns:
        None if a file is missing or has to be decoded, or if a path occurs twice or is not valid.

    Raises:
        CatalogUnavailable, CatalogOutdated, AccessDenied: The catalog does not answer.
    """
    given: Sequence[object] = paths  # type checkers do not see all callers
    if not all(isinstance(path, str) for path in given) or not is_text("".join(paths)):
        return None
    chunks = files.locate_plain(paths)
    if sum(len(chunk.paths) for chunk in chunks) != len(paths):
        return None
    return sorted(chunks, key=lambda chunk: (chunk.store, chunk.object_key))


def parts_of(chunk: ChunkFiles, store: Store) -> Iterator[ChunkFiles]:
    """Yield the files of a chunk in parts: one request reads those of a part, by the rule of `coalesce`."""
    rule = coalescing_of(store)
    first, first_byte, last_byte = 0, 0, 0
    for n, (start, end) in enumerate(zip(chunk.start_bytes, chunk.end_bytes, strict=True)):
        if n == first:
            first_byte, last_byte = start, end
        elif start - last_byte > rule.gap_bytes or end - first_byte > rule.read_bytes:
            yield chunk.part(first, n)
            first, first_byte, last_byte = n, start, end
        elif end > last_byte:
            last_byte = end
    yield chunk.part(first, len(chunk.paths))


def contents_of(part: ChunkFiles, store: Store) -> list[bytes] | None:
    """Return the bytes of the files. None if a file is too large for that, or damaged, or cannot be read."""
    begin, end = part.start_bytes[0], max(part.end_bytes)
    if end - begin > coalescing_of(store).read_bytes:
        return None
    try:
        data = store.read(part.object_key, begin, end) if end > begin else b""
    except FAILURES:
        return None
    spans = zip(part.start_bytes, part.end_bytes, strict=True)
    contents = [data[start - begin : end - begin] for start, end in spans]
    return contents if list(map(crc32c_of, contents)) == part.checksums else None


def requests_of(chunks: Iterable[ChunkFiles]) -> Iterator[ReadRequest]:
    """Yield a request for each file. Its location lacks the modification time, which reading does not need."""
    for chunk in chunks:
        columns = zip(chunk.paths, chunk.start_bytes, chunk.end_bytes, chunk.checksums, strict=True)
        for path, start, end, checksum in columns:
            location = Location(path, start, end, checksum, None, chunk.uuid, *chunk[1:4])
            yield ReadRequest(path, location, start, end)

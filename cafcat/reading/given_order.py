"""Reads many files in the order in which the caller names them, with few requests and bounded memory."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from cafcat.errors import CafcatError, Conflict
from cafcat.reading.coalescing import RangeRead
from cafcat.reading.plan import in_read_order, range_reads
from cafcat.reading.reader import FILE_ERRORS, FileReader
from cafcat.reading.request import ReadRequest

__all__ = ["LARGE_BYTES", "Content", "read_in_given_order", "windows_of"]

LARGE_BYTES: Final = 8 << 20
"""A file that needs more memory than this, in bytes, is not read together with others, but alone, at its turn."""
_WINDOW_BYTES: Final = 64 << 20
"""Most bytes of the files that are read together. All of them may have to wait for the first one."""


class Content(NamedTuple):
    """A file whose bytes, or error, are at hand, or whose turn has come to be read alone.

    Attributes:
        name: Path of the file as the caller gave it.
        request: The requested file and range; None if the file cannot be found or has no such range.
        result: The requested bytes, or the error of the file. None for a large file, which the caller reads now.
    """

    name: str
    request: ReadRequest | None
    result: bytes | CafcatError | None


Item = tuple[str, ReadRequest | CafcatError]
"""A path as the caller gave it, with the request for its file or the reason why there is none."""


def windows_of(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Split a list into parts whose files are read together: at most 64 MiB, not counting large files."""
    start, size_bytes = 0, 0
    for n, (_, found) in enumerate(items):
        cost = 0 if isinstance(found, CafcatError) or _is_large(found) else found.memory_bytes
        if size_bytes + cost > _WINDOW_BYTES:
            yield items[start:n]
            start, size_bytes = n, 0
        size_bytes += cost
    if start < len(items):
        yield items[start:]


def _is_large(request: ReadRequest) -> bool:
    return request.memory_bytes > LARGE_BYTES


def read_in_given_order(reader: FileReader, items: Sequence[Item]) -> Generator[Content, None, None]:
    """Yield the files of one window in the order of the items.

    Near files share a request, in any order. A folder is read in the order of archives and offsets. The requests to
    a remote store are sent in the order in which the caller gets their first files, so that these arrive soon. A
    file waits in memory until all files before it have been yielded.

    Args:
        reader: Reads the files.
        items: The files of one window, as `windows_of` returns it.

    Raises:
        AccessDenied, Unavailable: A store denies access or is out of reach, which concerns more than one file.
    """
    waiting: dict[int, Content] = {}
    positions: dict[int, int] = {}
    requests: list[ReadRequest] = []
    for n, (name, found) in enumerate(items):
        if isinstance(found, CafcatError):
            waiting[n] = Content(name, None, found)
        elif _is_large(found):
            waiting[n] = Content(name, found, None)
        else:
            requests.append(found)
            positions[id(found)] = n
    following = 0
    with closing(_results(reader, requests)) as results:
        while following < len(items):
            while following not in waiting:
                request, result = next(results)
                waiting[positions[id(request)]] = Content(request.name, request, result)
            yield waiting.pop(following)
            following += 1


def _results(
    reader: FileReader, requests: Sequence[ReadRequest]
) -> Generator[tuple[ReadRequest, bytes | CafcatError], None, None]:
    with closing(reader.files(_reads(reader, requests))) as files:
        for request, blocks in files:
            try:
                yield request, reader.save(request, blocks, b"".join)
            except (Conflict, *FILE_ERRORS) as error:
                yield request, error


def _reads(reader: FileReader, requests: Sequence[ReadRequest]) -> Iterator[RangeRead[ReadRequest]]:
    """Yield the reads for requests in the given order. Reads of one store follow each other."""
    turns = {id(request): n for n, request in enumerate(requests)}
    reads = range_reads(in_read_order(requests), reader.stores)
    for url, of_store in groupby(reads, key=attrgetter("store")):
        if reader.stores[url].is_remote:
            yield from sorted(of_store, key=lambda read: min(turns[id(request)] for request in read.files))
        else:
            yield from of_store

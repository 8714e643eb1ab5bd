"""Read files by path: looked up in the catalog, read from their chunk or a copy of it, checked and decoded."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeVar

from cafcat.errors import CafcatError, Corrupt, NotFound, NotInstalled, StoreFailed, Unsupported
from cafcat.model import Location
from cafcat.progress import Progress
from cafcat.reading.checking import Damaged, check, checked
from cafcat.reading.decoding import cut, decode, decoded
from cafcat.reading.replicas import FAILURES, Replica, ReplicaAttempts, Replicas
from cafcat.reading.request import ReadRequest
from cafcat.stores.base import Store
from cafcat.support.checksums import crc32c

if TYPE_CHECKING:
    from cafcat.reading.fetch import Answer
    from cafcat.reading.lookup import LocationCatalog
    from cafcat.reading.plan import RangeRead

__all__ = ["FILE_ERRORS", "FileReader"]

FILE_ERRORS: Final = (Corrupt, NotInstalled, StoreFailed, Unsupported)
"""Errors that concern one file: others can still be read."""

_CHECKED_BYTES: Final = 8 << 20
"""A file up to this size is checked before its first byte is handed out, so that a copy can still give it."""
_BLOCK_BYTES: Final = 1 << 20

Result = TypeVar("Result")
_Requested = tuple[ReadRequest, Iterator[bytes]]
"""A request, and the blocks that were requested."""


class FileReader:
    """Reads files of a catalog. Where a chunk's own object fails, its copies are read. Threads may share it."""

    def __init__(self, catalog: "LocationCatalog", stores: Mapping[str, Store], progress: Progress) -> None:
        """Open nothing yet.

        Args:
            catalog: A database, or a snapshot of one.
            stores: Stores by their URL.
            progress: Receives a warning, once for each chunk or store of which copies are read.
        """
        self._catalog = catalog
        self._replicas = Replicas(catalog, stores, progress)
        self.stores = stores

    def locate(self, path: str) -> Location:
        """Return where a file is: one query. A leading "./" or "/" is dropped if no file has the name as typed.

        Raises:
            NotFound: No file has the name. The hint differs if a folder has it.
            InvalidInput: No path can have the name.
        """
        try:
            return self._catalog.files.locate(path)
        except NotFound:
            from cafcat.reading.lookup import locate_as_typed

            return locate_as_typed(self._catalog.files, path)

    def locate_many(self, paths: Sequence[str]) -> dict[str, Location | CafcatError]:
        """Return for each path where the file is, or the error that `locate` would raise: one query for each
        thousand paths, and one for those that are missing."""
        from cafcat.reading.lookup import locate_many

        return locate_many(self._catalog.files, paths)

    def object_of(self, location: Location) -> str:
        """Return the absolute path or URL of the archive that a file is in."""
        return self.stores[location.store].locate(location.object_key)

    def read(self, request: ReadRequest) -> bytes:
        """Return the requested bytes. All bytes of a file are compared with its checksum; a part cannot be, unless
        the file has to be decoded.

        Raises:
            Corrupt: The file is damaged in its chunk and in every copy, or the chunk is missing.
            StoreFailed, AccessDenied: The store does not give the bytes.
            Unavailable: The whole store is out of reach.
            NotInstalled, Unsupported: The file cannot be decoded here.
        """
        location, failed = request.location, None
        if not self._replicas.has_failures:
            try:  # nearly all reads end here
                return self._read_from(location, request)
            except FAILURES as error:
                failed = error
        attempts = ReplicaAttempts(self._replicas, location, failed)
        return attempts.first(lambda replica: self._read_from(replica, request))

    def _read_from(self, replica: Replica | Location, request: ReadRequest) -> bytes:
        data = self.stores[replica.store].read(replica.object_key, request.start_byte, request.end_byte)
        if request.decoded_range is not None:
            return decoded(request, data)
        found = crc32c(data)
        if found != request.location.crc32c and request.is_whole:
            check(request.location, found)
        return data

    def stream(self, request: ReadRequest) -> Iterator[bytes]:
        """Yield the requested bytes in blocks of at most 1 MiB.

        A file of at most 8 MiB is checked before its first block is yielded. Of a larger file, the last block is
        yielded only if the checksum is right: until then the bytes are not proven.

        Raises:
            Damaged: A file of more than 8 MiB proved to be damaged at its end. See `read` for all other errors.
        """
        if not request.is_whole and request.decoded_range is None:
            yield from self._blocks(request)
        elif request.memory_bytes <= _CHECKED_BYTES:
            data = self.read(request)
            for start in range(0, len(data), _BLOCK_BYTES):
                yield data if len(data) <= _BLOCK_BYTES else data[start : start + _BLOCK_BYTES]
        elif request.location.size_bytes <= _CHECKED_BYTES:
            attempts = ReplicaAttempts(self._replicas, request.location)
            yield from attempts.first(lambda replica: list(_checked(request, self._open(replica, request))))
        else:
            yield from self._checked_last(request)

    def _checked_last(self, request: ReadRequest) -> Iterator[bytes]:
        try:
            yield from _checked(request, self._blocks(request))
        except Damaged as error:
            if self._replicas.others(request.location):
                error.hint = "a copy may be whole: get it into a file (get -o FILE), or run cafcat repair"
            raise

    def _blocks(self, request: ReadRequest) -> Iterator[bytes]:
        """Yield the blocks of a file, unchecked. Where a replica fails, the next one goes on at the same byte."""
        position = 0

        def rest(replica: Replica) -> Iterator[bytes]:
            nonlocal position
            for block in self._open(replica, request, position):
                position += len(block)
                yield block

        return ReplicaAttempts(self._replicas, request.location).results(rest)

    def _open(self, replica: Replica, request: ReadRequest, position: int = 0) -> Iterator[bytes]:
        """Return the content of a file in blocks, decoded, from a position on; of a file that is not decoded, only
        the requested range."""
        store, start = self.stores[replica.store], request.start_byte
        if request.decoded_range is None:
            return store.stream(replica.object_key, start + position, request.end_byte)
        content = decode(request.location, store.stream(replica.object_key, start, request.end_byte))
        return cut(content, (position, request.location.size_bytes)) if position else content

    def files(self, reads: "Iterable[RangeRead[ReadRequest]]") -> Generator[_Requested, None, None]:
        """Yield the requests that the reads serve, in order, each with its blocks. After a failure, copies are
        read.

        Several reads of a remote store are in flight. The blocks of a whole file are compared with its checksum
        before the last one is yielded; use them before the next request is taken. Close the generator if not all
        files are needed.

        Raises:
            AccessDenied, Unavailable: More than one file is concerned. The blocks raise the errors of their file.
        """
        from cafcat.reading.fetch import fetch

        for url, of_store in groupby(map(self._redirected, reads), key=lambda read: read.store):
            with closing(fetch(self.stores[url], of_store)) as answers:
                for read, answer in answers:
                    yield from self._files_of(read, answer)

    def _redirected(self, read: "RangeRead[ReadRequest]") -> "RangeRead[ReadRequest]":
        """Return the read of a copy, if the object failed a short while ago."""
        copy = self._replicas.instead_of(read.files[0].location)
        return read if copy is None else read.of_replica(copy)

    def _files_of(self, read: "RangeRead[ReadRequest]", answer: "Answer") -> Iterator[_Requested]:
        """Yield the requests of one read. A function of its own, so that its bytes are released before the next
        answer is waited for."""
        blocks_of = self.stream if read.in_blocks else self._blocks_in(read, answer)
        for request in read.files:
            yield request, blocks_of(request) if request.memory_bytes else self._content(request, b"")

    def _blocks_in(
        self, read: "RangeRead[ReadRequest]", answer: "Answer"
    ) -> Callable[[ReadRequest], Iterator[bytes]]:
        """Return the function that returns the blocks of each file of a read."""
        try:
            data = answer.data()
        except FAILURES as error:
            return self._after_failure(read, error)
        return lambda request: self._content(request, read.bytes_of(request, data))

    def _after_failure(
        self, read: "RangeRead[ReadRequest]", error: CafcatError
    ) -> Callable[[ReadRequest], Iterator[bytes]]:
        """Return how the files of a read are read after it failed.

        Damage of one file must not cost the other files, so each is read on its own. But a missing object is
        missing for all files, and so is one that a server could not give after all retries: then a copy is read.
        """
        from cafcat.reading.fetch import concerns_single_files

        location = read.files[0].location
        if read.store != location.store or concerns_single_files(self.stores[read.store], error):
            return self.stream
        attempts = ReplicaAttempts(self._replicas, location, failed=error)
        try:
            data = attempts.first(lambda copy: self._read_range(copy, read))
        except CafcatError:
            if attempts.concerns_all:
                raise
            return lambda request: _failing(attempts, request)
        return lambda request: self._content(request, read.bytes_of(request, data))

    def _read_range(self, replica: Replica, read: "RangeRead[ReadRequest]") -> bytes:
        return self.stores[replica.store].read(replica.object_key, read.start_byte, read.end_byte)

    def _content(self, request: ReadRequest, data: bytes) -> Iterator[bytes]:
        """Return the blocks of a file from the bytes of its span. A damaged file is read again, on its own."""
        if request.decoded_range is not None:
            try:
                return iter((decoded(request, data),))
            except (Corrupt, NotInstalled, Unsupported):
                return self._read_again(request)
        if crc32c(data) == request.location.crc32c or not request.is_whole:
            return iter((data,))
        return self._read_again(request)

    def _read_again(self, request: ReadRequest) -> Iterator[bytes]:
        yield self.read(request)

    def save(
        self,
        request: ReadRequest,
        blocks: Iterator[bytes],
        function: Callable[[Iterator[bytes]], Result],
        *,
        can_restart: bool = True,
    ) -> Result:
        """Write the blocks of a file, and return what `function` returns. If they prove to be damaged at their end,
        `function` is called again with the blocks of a copy.

        Args:
            request: What to read.
            blocks: The blocks of the request, as `stream` and `files` return them.
            function: Writes the blocks, and leaves nothing behind if they end in an error.
            can_restart: False if `function` cannot be called again: bytes that went into a pipe stay there.

        Raises:
            CafcatError: As `read` does, and what `function` raises.
        """
        try:
            return function(blocks)
        except Damaged as error:
            if not can_restart:
                raise
            attempts = ReplicaAttempts(self._replicas, request.location, failed=error)
            return attempts.first(
                lambda copy: function(_checked(request, self._open_copy(copy, request))), (Damaged,)
            )

    def _open_copy(self, copy: Replica, request: ReadRequest) -> Iterator[bytes]:
        """Yield the content of a file in a copy. All its errors are Damaged, and so are not errors of writing."""
        try:
            yield from self._open(copy, request)
        except FAILURES as error:
            raise Damaged(error.message, path=request.location.path) from error


def _checked(request: ReadRequest, content: Iterator[bytes]) -> Iterator[bytes]:
    """Return the requested bytes of a content, all of which is checked. Raises Damaged."""
    blocks = checked(request.location, content)
    return blocks if request.decoded_range is None else cut(blocks, request.decoded_range)


def _failing(attempts: ReplicaAttempts, request: ReadRequest) -> Iterator[bytes]:
    yield from ()
    raise attempts.error(request.location)

"""Reads files by path: finds them in the catalog, reads their chunk or a copy of it, decodes and checks them."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from cafcat.errors import CafcatError, Conflict, Corrupt, NotFound, NotInstalled, StoreFailed, Unsupported
from cafcat.model import ChunkFiles, Location
from cafcat.progress import Progress
from cafcat.reading.content import Damaged, check, checked, cut, decode, decoded
from cafcat.reading.replicas import FAILURES, IF_ORIGINAL, Replica, ReplicaAttempts, Replicas
from cafcat.reading.request import ReadRequest
from cafcat.stores.base import Store
from cafcat.support.checksums import crc32c
from cafcat.support.paths import check_text

if TYPE_CHECKING:
    from cafcat.reading.coalescing import RangeRead
    from cafcat.reading.fetch import Answer
    from cafcat.reading.lookup import LocationCatalog

__all__ = ["FILE_ERRORS", "FileReader", "Served"]

FILE_ERRORS: Final = (Corrupt, NotFound, NotInstalled, StoreFailed, Unsupported)
"""Errors that concern one file: other files can still be read."""

_CHECKED_BYTES: Final = 8 << 20
"""A file up to this size, in bytes, is checked before its first byte is yielded. If it is damaged, a copy is
read."""
_BLOCK_BYTES: Final = 1 << 20

Result = TypeVar("Result")
_Requested = tuple[ReadRequest, Iterator[bytes]]
"""A request, and an iterator over the requested bytes."""


class Served(NamedTuple):
    """The files of one read.

    Attributes:
        read: The read.
        blocks: Returns an iterator over the requested bytes of a file that is not empty, which raises its errors.
        data: All bytes of the read; None if they are not in memory.
    """

    read: "RangeRead[ReadRequest]"
    blocks: Callable[[ReadRequest], Iterator[bytes]]
    data: bytes | None = None

    def blocks_of(self, request: ReadRequest) -> Iterator[bytes]:
        """Return an iterator over the requested bytes of a file. An empty file needs no bytes of the chunk."""
        return self.blocks(request) if request.memory_bytes else iter((b"",))

    def content_of(self, request: ReadRequest) -> bytes | None:
        """Return the bytes of a whole file if they are in memory and right, else None: see `blocks_of`."""
        if self.data is None or request.decoded_range is not None or not request.is_whole:
            return None
        content = self.read.bytes_of(request, self.data)
        return content if crc32c(content) == request.location.crc32c else None


class FileReader:
    """Reads files of a catalog. If a chunk's own object fails, its copies are read. Threads may share a reader.

    Attributes:
        stores: Stores by their URL.
    """

    def __init__(self, catalog: "LocationCatalog", stores: Mapping[str, Store], progress: Progress) -> None:
        """Create a reader. This opens and queries nothing yet.

        Args:
            catalog: A database, or a snapshot of one.
            stores: Stores by their URL.
            progress: Receives a warning when copies are read: once for each chunk that failed, or once for its
                store if the whole store is out of reach.
        """
        self._catalog = catalog
        self._replicas = Replicas(catalog, stores, progress)
        self.stores = stores

    def locate(self, path: str) -> Location:
        """Return where a file is. This takes one query if a file has exactly this name.

        If no file has the name as typed, leading "./" and "/" are dropped, and further queries are sent.

        Raises:
            NotFound: No file has the name. If it is the name of a folder, the message mentions that.
            InvalidInput: No path can have the name, or it is no text.
        """
        check_text(path)
        try:
            return self._catalog.files.locate(path)
        except NotFound:
            from cafcat.reading.lookup import locate_as_typed

            return locate_as_typed(self._catalog.files, path)

    def read_path(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Look a file up, and return its bytes, or a range of them. Raises the errors of `locate` and `read`."""
        return self.read(ReadRequest.of(path, self.locate(path), start, end))

    def locate_many(self, paths: Sequence[str]) -> dict[str, Location | CafcatError]:
        """Return for each path where the file is, or the error that `locate` would raise: NotFound or InvalidInput.

        Each thousand paths need one query, and another one if some of them are missing.
        """
        from cafcat.reading.lookup import locate_many

        return locate_many(self._catalog.files, paths)

    def locate_whole(self, paths: Sequence[str]) -> list[ChunkFiles] | None:
        """Return files by chunk, as the function `locate_whole` does; None after a store has failed."""
        from cafcat.reading.whole_files import locate_whole

        return None if self._replicas.has_failures else locate_whole(self._catalog.files, paths)

    def explain_conflict(self, error: CafcatError, path: str, name: str) -> None:
        """Change the message of an error if the catalog has a file and a folder where the output has only one.

        Args:
            error: The error of writing a file. An error that is no Conflict stays as it is.
            path: Path of the file in the catalog.
            name: Its path below the output folder: the end of `path`.
        """
        if isinstance(error, Conflict):
            from cafcat.reading.lookup import explain_conflict

            explain_conflict(self._catalog.files, error, path, name)

    def object_of(self, location: Location) -> str:
        """Return the absolute path or URL of the archive that contains a file, which is never a copy."""
        return self.stores[location.store].locate(location.object_key)

    def read(self, request: ReadRequest) -> bytes:
        """Return the requested bytes of a file, from the chunk's own object or else from a copy.

        A whole file is compared with its checksum, and so is a file that has to be decoded. A range of any other
        file cannot be checked.

        Raises:
            Corrupt: The file's bytes in the chunk's own object are damaged or missing, and no copy can give them.
            StoreFailed, AccessDenied: The store does not give the bytes, and no copy can.
            Conflict: The object was replaced while it was read, and no copy can give the bytes.
            Unavailable: The whole store is out of reach, and no copy can give the bytes.
            NotInstalled, Unsupported: The file cannot be decoded here.
        """
        location, failed = request.location, None
        if not request.memory_bytes:
            return b""  # right even if the chunk is lost
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

    def stream(self, request: ReadRequest, *, checked_bytes: int = _CHECKED_BYTES) -> Iterator[bytes]:
        """Yield the requested bytes of a file in blocks of at most 1 MiB.

        A file of at most `checked_bytes` is compared with its checksum before its first block is yielded. Of a
        larger file, the last block is yielded only if the checksum is right: until then the bytes are not proven. A
        range of a file that need not be decoded cannot be checked.

        Args:
            request: The requested file and range.
            checked_bytes: Largest size of a file that is in memory as a whole, in bytes.

        Raises:
            Damaged: A larger file proved to be damaged at its end.
            Corrupt, StoreFailed, AccessDenied, Conflict, Unavailable, NotInstalled, Unsupported: As `read` raises
                them.
        """
        if not request.is_whole and request.decoded_range is None:
            yield from self._blocks(request)
        elif request.memory_bytes <= checked_bytes:
            data = self.read(request)
            for start in range(0, len(data), _BLOCK_BYTES):
                yield data if len(data) <= _BLOCK_BYTES else data[start : start + _BLOCK_BYTES]
        elif request.location.size_bytes <= checked_bytes:
            attempts = ReplicaAttempts(self._replicas, request.location)
            yield from attempts.first(lambda replica: list(_checked(request, self._open(replica, request))))
        else:
            yield from self._checked_last(request)

    def _checked_last(self, request: ReadRequest) -> Iterator[bytes]:
        try:
            yield from _checked(request, self._blocks(request))
        except Damaged as error:
            self.record_damage(request.location, error)
            raise

    def record_damage(self, location: Location, error: Corrupt) -> None:
        """Add a hint to the error of a file that proved to be damaged at its end.

        For five minutes, this reader gets the file from a copy, if there is one.
        """
        error.hint = f"{self._replicas.remedy(location)}, {IF_ORIGINAL}"
        if self._replicas.others(location):
            self._replicas.record_damage(location)
            error.hint = f"if a copy is undamaged, cafcat get -o FILE writes the file; else {error.hint}"

    def _blocks(self, request: ReadRequest) -> Iterator[bytes]:
        """Yield the blocks of a file, unchecked. If a replica fails, the next one continues at the same byte.

        Raises:
            CafcatError: All replicas failed: the error as `ReplicaAttempts.error` returns it.
        """
        position = 0

        def rest(replica: Replica) -> Iterator[bytes]:
            nonlocal position
            for block in self._open(replica, request, position):
                position += len(block)
                yield block

        return ReplicaAttempts(self._replicas, request.location).results(rest)

    def _open(self, replica: Replica, request: ReadRequest, position: int = 0) -> Iterator[bytes]:
        """Return the blocks of a file from one replica, unchecked.

        Of a file that has to be decoded, these are all of its decoded content; of any other file, the requested
        range. The first `position` bytes are left out.

        Args:
            replica: The object that is read.
            request: The requested file and range.
            position: Number of bytes that the caller has already.
        """
        store, start = self.stores[replica.store], request.start_byte
        if request.decoded_range is None:
            return store.stream(replica.object_key, start + position, request.end_byte)
        content = decode(request.location, store.stream(replica.object_key, start, request.end_byte))
        return cut(content, (position, request.location.size_bytes)) if position else content

    def files(self, reads: "Iterable[RangeRead[ReadRequest]]") -> Generator[_Requested, None, None]:
        """Yield the requests that the reads serve, in order, each with an iterator over the requested bytes.

        Several reads of a remote store are in flight. If an object fails, its copies are read. A whole file is
        compared with its checksum before its last block is yielded. Use each iterator before you take the next
        request. It raises the errors of its file. Close the generator if not all files are needed.

        Args:
            reads: What to read, as `cafcat.reading.plan.range_reads` returns it.

        Raises:
            AccessDenied, Unavailable: A store denies access or is out of reach, which concerns more than one file.
        """
        with closing(self.served(reads)) as all_served:
            for served in all_served:
                for request in served.read.files:
                    yield request, served.blocks_of(request)
                del served  # its bytes are released before the next answer arrives

    def served(self, reads: "Iterable[RangeRead[ReadRequest]]") -> Generator[Served, None, None]:
        """Yield the files of each read, in order. Errors and use are those of `files`."""
        from cafcat.reading.fetch import fetch

        for (url, is_lost), of_store in groupby(map(self._redirected, reads), key=self._place_of):
            if is_lost:  # a request would wait for the store once more
                yield from (Served(read, self._lost) for read in of_store)
                continue
            with closing(fetch(self.stores[url], of_store)) as answers:
                for read, answer in answers:
                    yield self._served(read, answer)

    def _redirected(self, read: "RangeRead[ReadRequest]") -> "RangeRead[ReadRequest]":
        """Return the read, changed to one of a copy if the chunk's own object failed in the last five minutes."""
        copy = self._replicas.instead_of(read.files[0].location)
        return read if copy is None else read.of_replica(copy)

    def _place_of(self, read: "RangeRead[ReadRequest]") -> tuple[str, bool]:
        """Return the URL of the store of a read, and whether nothing can be read there or from a copy."""
        location = read.files[0].location
        return read.store, read.store == location.store and self._replicas.is_lost(location)

    def _lost(self, request: ReadRequest) -> Iterator[bytes]:
        error = self._replicas.error_of_lost(request.location)
        if error is not None:
            raise error
        yield from self.stream(request)  # the store answers again

    def _served(self, read: "RangeRead[ReadRequest]", answer: "Answer") -> Served:
        """Return the files of a read, from the answer or from a copy."""
        if read.in_blocks:
            return Served(read, self.stream)
        try:
            data = answer.data()
        except FAILURES as error:
            return self._after_failure(read, error)
        return self._in_memory(read, data)

    def _in_memory(self, read: "RangeRead[ReadRequest]", data: bytes) -> Served:
        return Served(read, lambda request: self._content(request, read.bytes_of(request, data)), data)

    def _after_failure(self, read: "RangeRead[ReadRequest]", error: CafcatError) -> Served:
        """Return the files of a read that failed as a whole.

        Damage of one file must not cost the other files, so each is read on its own. But an object that is missing,
        or that a server could not give after all retries, fails for all files: then the whole read is sent to a
        copy. If all copies fail, too, the blocks raise the error of their file.

        Args:
            read: The read that failed.
            error: Why it failed.

        Raises:
            AccessDenied, Unavailable: All copies fail, and the error concerns the whole store.
        """
        from cafcat.reading.fetch import concerns_single_files

        location = read.files[0].location
        if read.store != location.store or concerns_single_files(self.stores[read.store], error):
            return Served(read, self.stream)
        attempts = ReplicaAttempts(self._replicas, location, failed=error)
        try:
            data = attempts.first(lambda copy: self._read_range(copy, read))
        except CafcatError:
            if attempts.concerns_all:
                raise
            return Served(read, lambda request: _failing(attempts, request))
        return self._in_memory(read, data)

    def _read_range(self, replica: Replica, read: "RangeRead[ReadRequest]") -> bytes:
        return self.stores[replica.store].read(replica.object_key, read.start_byte, read.end_byte)

    def _content(self, request: ReadRequest, data: bytes) -> Iterator[bytes]:
        """Return the requested bytes of a file as an iterator, checked as by `read`.

        A file that is damaged, or cannot be decoded, is read again on its own: a copy may be undamaged.

        Args:
            request: The requested file and range.
            data: The bytes `[start_byte, end_byte)` of the request.
        """
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
        """Pass the blocks of a file to a function that writes them, and return its result.

        If a large file proves to be damaged at its end, `function` is called again with the blocks of a copy.

        Args:
            request: The requested file and range.
            blocks: The requested bytes, as `stream` and `files` return them.
            function: Writes the blocks, and leaves nothing behind if the iteration raises an error.
            can_restart: False if `function` cannot be called again, because bytes that went into a pipe stay there.

        Raises:
            CafcatError: An error of `blocks`, as `stream` raises them, or of `function`.
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
        """Yield the blocks of a file from one copy, unchecked.

        Errors of reading become Damaged, so that `save` can distinguish them from errors of writing.
        """
        try:
            yield from self._open(copy, request)
        except FAILURES as error:
            path = request.location.path
            raise Damaged(error.message, path=path, chunk=error.chunk, byte=error.byte, hint=error.hint) from error


def _checked(request: ReadRequest, content: Iterator[bytes]) -> Iterator[bytes]:
    """Return the requested bytes of a file as blocks. All of the content is compared with the file's checksum.

    Args:
        request: The requested file and range.
        content: The whole content of the file, decoded if the file has to be decoded.

    Raises:
        Damaged: The checksum is wrong. This is raised during the iteration, at the end of the content.
    """
    blocks = checked(request.location, content)
    return blocks if request.decoded_range is None else cut(blocks, request.decoded_range)


def _failing(attempts: ReplicaAttempts, request: ReadRequest) -> Iterator[bytes]:
    yield from ()
    raise attempts.error(request.location)

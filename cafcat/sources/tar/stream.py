"""A tar archive that is read once, front to back: standard input, or a compressed file.

Nothing is written to disk, except for a large member that has to be read several times (`TarStreamSource.buffer`).
The locator of a file (`SourceFile.locator`) is the offset of the member's contents, in bytes from the start of the
decompressed archive.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO, Final

from cafcat.errors import InvalidInput, SourceFailed
from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.progress import Progress
from cafcat.sources.fetched import SMALL_BYTES, FetchedFile
from cafcat.sources.filter import PathFilter
from cafcat.sources.names import printable
from cafcat.sources.tar.headers import cut
from cafcat.sources.tar.input import OpenArchive, State, StreamInput, decompressed, open_stream
from cafcat.sources.tar.items import Found, Items, damage, key, last_files, own_item, shown
from cafcat.sources.tar.members import Member, MemberKind, Members, content_parts
from cafcat.support.spool import Spool

__all__ = ["TarStreamSource"]

_BUFFERED_FILE_BYTES: Final = SMALL_BYTES
"""Largest file that stays in memory until the next batch, in bytes. A larger file ends its batch, and is read
from the stream."""
_BATCH_BYTES: Final = 64 << 20
"""Most contents of one batch in memory, in bytes."""
_BATCH_ITEMS: Final = 5_000
"""Most items of one batch."""
_COPY_MEMORY_BYTES: Final = 16 << 20
"""Largest copied file that stays in memory, in bytes. A larger copy is moved to a temporary file."""


class TarStreamSource:
    """The members of a tar archive that is read once, as a source, in the order of the archive.

    If a name occurs several times in a batch, only the last file of this name is yielded, which tar would extract
    last. A name that occurs again in a later batch is yielded again.

    Members of a batch can be opened until the next batch is requested. A hard link becomes a file if its target
    comes before it in the same batch. Otherwise it is a problem, because the contents have already been read.
    """

    def __init__(
        self,
        typed: str | BinaryIO,
        *,
        prefix: str = "",
        filter: PathFilter | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Prepare to read a tar archive. A named file is opened later.

        Args:
            typed: "-" for standard input, the name of a file, or an open binary stream, which is read once.
            prefix: Folder of the catalog that the names are put into.
            filter: Which members to ingest, by their names in the archive. None: all.
            progress: Receives a warning if the beginning of a member's name is removed.

        Raises:
            InvalidInput: Standard input is closed or a terminal.
        """
        self._archive = _standard_input() if typed == "-" else typed
        if typed == "-":
            self.name = "standard input"
        else:
            self.name = printable(typed if isinstance(typed, str) else str(getattr(typed, "name", "stream")))
        self._is_begun = False
        self._root = f"a stream read by {os.getpid()} at {time.time_ns()} ns since 1970"
        self._items = Items(prefix, filter, progress or Progress())
        self._batch = _Batch(StreamInput(iter(())), OpenArchive(BytesIO()))

    def root_of(self, file: SourceFile) -> str:  # noqa: ARG002 - all members have the same root
        """Return the root of all members: path, size and time of the archive; for an open stream, a unique text.

        Before `files` or `batches` has opened a file, the root is a unique text, too.
        """
        return self._root

    def batches(self) -> Iterator[list[SourceFile | FileProblem]]:
        """Yield the files and problems of `files` in lists of at most 5,000.

        The files of a list can be opened until the next list is requested. Files of at most 1 MiB are in memory, at
        most 64 MiB for one list. A list ends with its first larger file.
        """
        is_empty = True
        try:
            with self._opened() as opened:
                for batch in self._read(opened):
                    is_empty = False
                    yield batch
        except SourceFailed as error:
            if is_empty:
                error.message = f"no tar archive, which it must be: {error.message}"
            yield [damage(self.name, error)]

    def files(self) -> Iterator[SourceFile | FileProblem]:
        """Yield the file to ingest for each member of the archive, or the problem if it cannot be ingested.

        A file can be opened reliably only until the next item is requested. Folders, and members that the filter
        excludes, are left out. If the archive is damaged, has changed, or cannot be read, the last item is a
        problem with the name of the archive.
        """
        for batch in self.batches():
            yield from batch

    def buffer(self, file: SourceFile) -> None:
        """Let the large file of the present batch be opened and read several times.

        The first reading copies its contents, to a temporary file if they are larger than 16 MiB. For any other
        file of the batch, this does nothing, because its contents are in memory.
        """
        batch = self._batch
        if batch.copy is None and batch.large is not None and file.locator == _locator(batch.large):
            batch.copy = _Copy()

    def open(self, file: SourceFile) -> FetchedFile:
        """Open a member of the present batch. Raises SourceFailed for any other member."""
        batch = self._batch
        content = batch.contents.get(file.locator)
        if content is not None:
            return FetchedFile(file, content, modified_ns=file.modified_ns)
        if batch.large is not None and file.locator == _locator(batch.large):
            return FetchedFile(file, None, _LargeFile(batch, file.path), modified_ns=file.modified_ns)
        raise SourceFailed("cannot be read any more: the stream is read only once", path=printable(file.path))

    def _read(self, opened: OpenArchive) -> Iterator[list[Found]]:
        archive = StreamInput(decompressed(opened.pieces()))
        members = iter(Members(archive))
        more = True
        try:
            while more:
                self._batch = _Batch(archive, opened)
                more = self._fill(members)
                if self._batch.items:
                    yield last_files(self._batch.items)
        finally:
            self._batch = _Batch(archive, opened)  # frees the contents

    @contextlib.contextmanager
    def _opened(self) -> Iterator[OpenArchive]:
        if isinstance(self._archive, str):
            with open_stream(self._archive) as stream:
                state = State.of(stream.fileno())
                self._root = state.root(self._archive)
                yield OpenArchive(stream, state)
        elif self._is_begun:
            raise SourceFailed("the stream was read already, and can be read only once")
        else:
            self._is_begun = True
            yield OpenArchive(self._archive)

    def _fill(self, members: Iterator[Member]) -> bool:
        """Add members to the present batch until it is full.

        Returns:
            False at the end of the archive, or if the archive cannot be read further.
        """
        batch = self._batch
        try:
            for member in members:
                self._add(member)
                if batch.is_full:
                    return True
            batch.opened.check()
        except SourceFailed as error:
            batch.items.append(damage(self.name, batch.opened.explained(error)))
        return False

    def _add(self, member: Member) -> None:
        batch = self._batch
        is_link = member.kind is MemberKind.LINK
        found = batch.target(member) if is_link else own_item(member, _locator(member))
        item = self._items.item(member, found)
        if item is None:
            return
        if isinstance(item, SourceFile) and not is_link:
            batch.buffer(member)
        batch.items.append(item)
        if not (isinstance(item, FileProblem) and item.kind is ProblemKind.NAME):
            batch.targets[key(member.name)] = item


class _Batch:
    """The members of a tar stream that can be opened now.

    Small members are in memory. The last member of a batch may be a large one, which is still in the stream.
    """

    def __init__(self, archive: StreamInput, opened: OpenArchive) -> None:
        """Begin an empty batch of members.

        Args:
            archive: The decompressed archive, at the next header.
            opened: The archive before decompression, which shows whether its file has changed.
        """
        self.archive = archive
        self.opened = opened
        self.items: list[Found] = []
        self.contents: dict[str, bytes] = {}
        self.large: Member | None = None
        self.copy: _Copy | None = None
        self.targets: dict[str, Found] = {}
        self._buffered_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if no further member may be added to the batch."""
        return (
            self.large is not None
            or len(self.items) >= _BATCH_ITEMS
            or self._buffered_bytes > _BATCH_BYTES - _BUFFERED_FILE_BYTES
        )

    def buffer(self, member: Member) -> None:
        """Read the contents of a small file into memory, or note the member as the large file of the batch.

        Raises SourceFailed if the archive ends within the contents.
        """
        if member.size_bytes > _BUFFERED_FILE_BYTES:
            self.large = member
            return
        self.contents[_locator(member)] = b"".join(_Contents(self.archive, member))
        self._buffered_bytes += member.size_bytes

    def target(self, link: Member) -> Found:
        """Return the file to ingest for the target of a hard link, or the problem if the target cannot be ingested.

        The result is a problem, too, if the target is not in this batch.
        """
        message = (
            f"a hard link to {shown(link.link_name)!r}, whose contents were read before in the stream: "
            "ingest the archive from an uncompressed file"
        )
        gone = FileProblem("", ProblemKind.UNREADABLE, message)
        return self.targets.get(key(link.link_name), gone)


class _Copy:
    """A copy of the large file of a batch, made when the file is read for the first time."""

    def __init__(self) -> None:
        self._spool = Spool("a member of a tar stream", _COPY_MEMORY_BYTES)
        self._is_whole = False
        self._failure: SourceFailed | None = None

    def blocks(self, original: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the file in blocks: from the stream the first time, from the copy later.

        The first reading must be complete, because it makes the copy.

        Raises:
            SourceFailed: The archive is damaged, has changed, or cannot be read.
            TemporaryFileFailed: The copy cannot be written or read.
        """
        if self._failure is not None:
            raise self._failure
        if self._is_whole:
            yield from self._spool.blocks_from(0)
            return
        try:
            for block in original:
                self._spool.write(block)
                yield block
        except SourceFailed as error:
            self._failure = error
            raise
        self._is_whole = True


class _LargeFile:
    """The contents of the large file of a batch, in blocks.

    They are next in the stream. Until the next batch is requested, they can be read once, or several times if
    `buffer` was called. Iteration raises SourceFailed if the archive is damaged, or was read further meanwhile.
    """

    def __init__(self, batch: _Batch, path: str) -> None:
        self._batch = batch
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        copy = self._batch.copy
        return self._next_in_stream() if copy is None else copy.blocks(self._next_in_stream())

    def _next_in_stream(self) -> Iterator[bytes]:
        batch = self._batch
        assert batch.large is not None  # noqa: S101 - no other batch has a large file
        try:
            yield from _Contents(batch.archive, batch.large)
            batch.opened.check()
        except SourceFailed as error:
            why = batch.opened.explained(error)
            raise SourceFailed(why.message, path=printable(self._path), problem=why.problem) from error


class _Contents:
    """Iterates once over the contents of the member that is next in the stream, in blocks of at most 1 MiB."""

    def __init__(self, archive: StreamInput, member: Member) -> None:
        self._archive = archive
        self._member = member
        self._position = member.start_byte

    def __iter__(self) -> Iterator[bytes]:
        self._check_position()
        for part in content_parts(self._member.size_bytes, self._member.extents):
            yield part if isinstance(part, bytes) else self._next(part)

    def _next(self, size_bytes: int) -> bytes:
        self._check_position()
        data = self._archive.read(size_bytes)
        self._position += len(data)
        if len(data) < size_bytes:
            end = self._member.start_byte + self._member.stored_bytes
            raise cut(self._position, end, "the contents of a member")
        return data

    def _check_position(self) -> None:
        if self._archive.position_byte != self._position:
            raise SourceFailed("cannot be read any more: the stream is read only once")


def _locator(member: Member) -> str:
    return str(member.start_byte)


def _standard_input() -> BinaryIO:
    hint = "pipe an archive into it"
    if sys.stdin is None:
        raise InvalidInput("standard input is closed", hint=hint)
    if sys.stdin.isatty():
        raise InvalidInput("standard input is a terminal, not an archive", hint=hint)
    return sys.stdin.buffer

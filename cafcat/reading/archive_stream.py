"""Streams many files as one tar or zip, in the order in which the caller names them."""

import json
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, Final, Literal, NamedTuple, Protocol

from cafcat.errors import CafcatError, Conflict, InvalidInput
from cafcat.reading.given_order import Content
from cafcat.reading.reader import FILE_ERRORS, FileReader
from cafcat.reading.request import ReadRequest
from cafcat.support.spool import Spool

__all__ = [
    "ERRORS_MEMBER",
    "FORMATS",
    "ON_ERROR",
    "ArchiveStream",
    "OnError",
    "SpooledFile",
    "member_writer",
    "spooled",
]

ERRORS_MEMBER: Final = ".cafcat-errors.json"
"""Name of the last member, which lists the files that were left out."""
FORMATS: Final = ("tar", "zip")
"""Formats of the streams."""
ON_ERROR: Final = ("fail", "skip")
"""What a stream does about a file that is missing or damaged: end with the error, or leave the file out."""

OnError = Literal["fail", "skip"]

_BLOCK_BYTES: Final = 256 << 10
"""Small members are joined to blocks of at least this size, in bytes."""
_SPOOL_BYTES: Final = 8 << 20
"""A large file that must be checked first is in memory up to this size, in bytes, and else in a temporary file."""


class MemberWriter(Protocol):
    """Makes the bytes of an archive that stand around the contents of its members.

    Attributes:
        needs_checksum: True if the header of a member has the CRC-32 of its content.
    """

    needs_checksum: bool

    def header(self, name: str, size_bytes: int, modified_ns: int | None, crc32: int) -> bytes:
        """Return the bytes before the content of a member.

        Args:
            name: Name of the member.
            size_bytes: Size of its content.
            modified_ns: Its modification time, in nanoseconds since 1970; None if unknown.
            crc32: CRC-32 of its content; any number if `needs_checksum` is false.
        """

    def trailer(self, size_bytes: int) -> bytes:
        """Return the bytes after the content of a member of this size."""

    def end(self) -> Iterator[bytes]:
        """Yield the bytes after the last member. This is called once."""


def member_writer(format: str) -> MemberWriter:
    """Return a new writer for the members of an archive.

    Args:
        format: "tar" or "zip".

    Raises:
        InvalidInput: The format is another one.
    """
    if format == "tar":
        from cafcat.reading.tar_members import TarMembers

        return TarMembers()
    if format == "zip":
        from cafcat.reading.zip_members import ZipMembers

        return ZipMembers()
    raise InvalidInput(f"no such format of a stream: {format!r}", hint="use tar or zip")


class SpooledFile(NamedTuple):
    """A large file that was read completely, and proved to be undamaged.

    Attributes:
        spool: Its bytes.
        crc32: Their CRC-32.
    """

    spool: Spool
    crc32: int


class ArchiveStream:
    """The bytes of a tar or zip with many files. Iterate it once, and close it if you stop earlier.

    A member has the path of the catalog, without a leading slash. A whole file is compared with its checksum; a
    file of more than 8 MiB before its first byte is yielded, unless the stream is a tar that ends at the first
    error.

    With `on_error` "skip", a file that cannot be found or read is left out, and the last member,
    `.cafcat-errors.json`, lists it: a JSON array of objects with `path`, `kind` and `message`. Without such files
    there is no such member. With "fail", the iteration raises the error of the file, and the archive has no end.

    Attributes:
        failed: The files that were left out so far, each with its error.
        file_count: Number of files that were yielded so far.
        format: "tar" or "zip".
    """

    def __init__(
        self,
        reader: FileReader,
        contents: Callable[[], Generator[Content, None, None]],
        format: str,
        on_error: str,
    ) -> None:
        """Prepare a stream. This reads nothing yet.

        Args:
            reader: Reads large files.
            contents: Returns the files in the order of the archive.
            format: "tar" or "zip".
            on_error: "skip" or "fail".

        Raises:
            InvalidInput: The format or `on_error` is something else.
        """
        if on_error not in ON_ERROR:
            raise InvalidInput(f"on_error must be skip or fail, not {on_error!r}")
        self.format = format
        self.failed: list[tuple[str, CafcatError]] = []
        self.file_count = 0
        self._members = member_writer(format)
        self._skips = on_error == "skip"
        self._reader = reader
        self._blocks = _joined(self._archive(contents))

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._blocks)

    def close(self) -> None:
        """End the stream, and the requests in flight. Idempotent."""
        self._blocks.close()

    def _archive(self, contents: Callable[[], Generator[Content, None, None]]) -> Iterator[bytes]:
        with closing(contents()) as files:
            for content in files:
                try:
                    member = self._member(content)
                except (Conflict, InvalidInput, *FILE_ERRORS) as error:
                    self._leave_out(content.name, error)
                    continue
                yield from member
                self.file_count += 1
        if self.failed:
            yield from self._small(ERRORS_MEMBER, None, _document(self.failed))
        yield from self._members.end()

    def _leave_out(self, name: str, error: CafcatError) -> None:
        if not self._skips:
            raise error
        self.failed.append((name, error))

    def _member(self, content: Content) -> Iterator[bytes]:
        """Return the bytes of one member. Its content is checked now, unless an error may end the stream later.

        Raises:
            CafcatError: The file cannot be read.
        """
        name, request, result = content
        if isinstance(result, CafcatError):
            raise result
        if request is not None:
            name = request.location.path.lstrip("/")
        if request is None or result is not None:
            return self._small(name, request, result or b"")
        if self._skips or self._members.needs_checksum:
            blocks = self._reader.stream(request)
            return self._large(name, request, self._reader.save(request, blocks, spooled))
        return self._unchecked(name, request)

    def _small(self, name: str, request: ReadRequest | None, data: bytes) -> Iterator[bytes]:
        crc32 = zlib.crc32(data) if self._members.needs_checksum else 0
        yield self._members.header(name, len(data), request and request.modified_ns, crc32)
        yield data
        yield self._members.trailer(len(data))

    def _large(self, name: str, request: ReadRequest, checked: SpooledFile) -> Iterator[bytes]:
        with checked.spool as spool:
            yield self._members.header(name, _size_of(request), request.modified_ns, checked.crc32)
            spool.seek(0)
            while block := spool.read(_BLOCK_BYTES):
                yield block
        yield self._members.trailer(_size_of(request))

    def _unchecked(self, name: str, request: ReadRequest) -> Iterator[bytes]:
        yield self._members.header(name, _size_of(request), request.modified_ns, 0)
        yield from self._reader.stream(request)
        yield self._members.trailer(_size_of(request))


def _size_of(request: ReadRequest) -> int:
    return request.location.size_bytes


def spooled(blocks: Iterator[bytes]) -> SpooledFile:
    """Read all blocks of a file into a temporary file. Errors of the iteration are raised."""
    spool, crc32 = Spool("a file of an archive", _SPOOL_BYTES), 0
    try:
        for block in blocks:
            spool.write(block)
            crc32 = zlib.crc32(block, crc32)
        spool.flush()
    except BaseException:
        spool.close()
        raise
    return SpooledFile(spool, crc32)


def _joined(parts: Iterator[bytes]) -> Generator[bytes, None, None]:
    """Yield the parts joined to blocks of at least 256 KiB, except for the last block."""
    waiting: list[bytes] = []
    size_bytes = 0
    for part in parts:
        waiting.append(part)
        size_bytes += len(part)
        if size_bytes >= _BLOCK_BYTES:
            yield b"".join(waiting)
            waiting, size_bytes = [], 0
    if waiting:
        yield b"".join(waiting)


def _document(failed: list[tuple[str, CafcatError]]) -> bytes:
    rows: list[dict[str, Any]] = [
        {"path": name, "kind": error.kind, "message": error.message} for name, error in failed
    ]
    return json.dumps(rows, indent=1).encode() + b"\n"

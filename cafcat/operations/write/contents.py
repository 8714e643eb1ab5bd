"""A source of files whose contents a program gives: bytes, or an open binary file."""

import io
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, Final, Self

from cafcat.errors import InvalidInput, SourceFailed
from cafcat.model import SourceFile
from cafcat.support.spool import Spool

__all__ = ["GivenContents", "GivenFile"]

_BLOCK_BYTES: Final = 1 << 20
_SPOOL_BYTES: Final = 32 << 20
"""A stream of unknown size is kept in memory up to this size, in bytes. A larger one goes to a temporary file."""


class GivenFile:
    """The content of one file, with its size. It can be read once, by an ingest: it is an OpenFile.

    Attributes:
        size_bytes: Size of the file.
        modified_ns: Modification time, in nanoseconds since 1970 UTC.
        etag: None.
    """

    etag = None

    def __init__(self, data: bytes | bytearray | memoryview | BinaryIO, modified_ns: int) -> None:
        """Find out the size of a content. A stream that cannot seek is read to its end for that.

        Args:
            data: The bytes, or a binary file, which is read from its position to its end.
            modified_ns: Modification time, in nanoseconds since 1970 UTC.

        Raises:
            InvalidInput: `data` is neither bytes nor a binary file.
            TemporaryFileFailed: The temporary file of a large stream failed.
        """
        self.modified_ns = modified_ns
        self._stream, self.size_bytes = _with_size(data)

    def read(self) -> bytes:
        """Return all bytes of the file."""
        return b"".join(self.blocks())

    def blocks(self) -> Iterator[bytes]:
        """Yield all bytes of the file in blocks of at most 1 MiB.

        Raises:
            SourceFailed: The stream failed, or ended early.
        """
        left = self.size_bytes
        while left:
            try:
                block = bytes(self._stream.read(min(left, _BLOCK_BYTES)))
            except Exception as error:
                raise SourceFailed(f"the content cannot be read: {error}") from error
            if not block:
                raise SourceFailed(f"the content ended {left:,} bytes before its end")
            left -= len(block)
            yield block

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._stream, Spool):
            self._stream.close()


def _with_size(data: bytes | bytearray | memoryview | BinaryIO) -> tuple[BinaryIO | Spool, int]:
    if isinstance(data, bytes | bytearray | memoryview):
        content = bytes(data)
        return io.BytesIO(content), len(content)
    if not hasattr(data, "read") or hasattr(data, "encoding"):  # files in text mode have an encoding
        hint = "open the file in binary mode, or encode the text"
        raise InvalidInput(f"a content must be bytes or a binary file, not {type(data).__name__}", hint=hint)
    if getattr(data, "seekable", bool)():
        start = data.tell()
        size_bytes = data.seek(0, io.SEEK_END) - start
        data.seek(start)
        return data, max(size_bytes, 0)
    return _copied(data)


def _copied(stream: BinaryIO) -> tuple[Spool, int]:
    spool, size_bytes = Spool("the content of a file", _SPOOL_BYTES), 0
    try:
        while block := stream.read(_BLOCK_BYTES):
            spool.write(block)
            size_bytes += len(block)
        spool.seek(0)
    except BaseException:
        spool.close()
        raise
    return spool, size_bytes


class GivenContents:
    """A source whose files are added one by one, and ingested in batches.

    Attributes:
        name: Name of the source in the catalog.
        files_to_add: The files of the next batch, in the order in which they were added.
        size_bytes: Total size of these files.
    """

    name = "Repository.writer"

    def __init__(self) -> None:
        self.files_to_add: list[SourceFile] = []
        self.size_bytes = 0
        self._contents: dict[str, GivenFile] = {}

    def add(self, path: str, content: GivenFile) -> None:
        """Add a file to the next batch."""
        locator = str(len(self.files_to_add))
        self.files_to_add.append(SourceFile(path, content.size_bytes, content.modified_ns, locator))
        self.size_bytes += content.size_bytes
        self._contents[locator] = content

    def clear(self) -> None:
        """Forget the files of the batch."""
        self.files_to_add, self.size_bytes = [], 0
        self._contents.clear()

    def files(self) -> Iterator[SourceFile]:
        """Yield the files of the next batch."""
        yield from self.files_to_add

    def open(self, file: SourceFile) -> GivenFile:
        """Return the content of a file of the batch."""
        return self._contents[file.locator]

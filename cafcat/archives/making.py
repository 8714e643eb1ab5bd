"""A new archive as a file: it appears whole and durable, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cafcat.formats.base import UNLIMITED, Format, Writer
from cafcat.model import NewFile
from cafcat.progress import Progress
from cafcat.reading.output_errors import disk_errors
from cafcat.reading.outputs import Output, unnamed
from cafcat.support.new_file import write_all

__all__ = ["FileSink", "NewArchive", "new_archive", "new_file"]

_WHOLE_FILE_BYTES: Final = 1 << 20
"""Files up to this size are read before they are written, several together."""
_GROUP_FILES: Final = 256
_GROUP_BYTES: Final = 1 << 20


class FileSink:
    """A HeadSink into an open file. Methods raise OutputFailed."""

    def __init__(self, file: int, shown: str) -> None:
        """shown: what messages call it."""
        self._file = file
        self._shown = shown
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        with disk_errors(self._shown):
            write_all(self._file, data)
        self.size_bytes += len(data)

    def rewrite_head(self, data: bytes) -> None:
        """In place of the first bytes."""
        with disk_errors(self._shown):
            os.lseek(self._file, 0, os.SEEK_SET)
            write_all(self._file, data)


@contextmanager
def new_file(output: Output) -> Iterator[FileSink]:
    """A sink for a new file that takes its name, durably, when this is left; after an error nothing is left of it.
    Raises Conflict if there is a file already that is not to be overwritten, InvalidInput for a device or pipe,
    OutputFailed."""
    with unnamed(output) as file:
        yield FileSink(file, output.shown)


@contextmanager
def new_archive(output: Output, archive_format: Format, *, progress: Progress) -> Iterator["NewArchive"]:
    """A new archive in such a file: it is finished when this is left."""
    with new_file(output) as sink:
        archive = NewArchive(archive_format.writer(sink), progress)
        yield archive
        archive.finish()


class NewArchive:
    """An archive that takes files, one after the other, in that order.

    files, bytes: taken; size_bytes: of the finished archive. Memory: 2 MiB, and what its writer says.
    """

    def __init__(self, writer: Writer, progress: Progress) -> None:
        self._writer = writer
        self._progress = progress
        self._group: list[NewFile] = []
        self._group_bytes = 0
        self.files = self.bytes = self.size_bytes = 0

    def take(self, path: str, size_bytes: int, modified_ns: int | None, blocks: Iterator[bytes]) -> None:
        """Takes a file. If the blocks end in an error, it is not taken, and may come again: what was written of it
        stays as dead bytes. Raises that, Refused for a name or number of files that the format cannot have, and
        OutputFailed."""
        if size_bytes > _WHOLE_FILE_BYTES:
            self._flush()
            self._stream(path, modified_ns, blocks)
            return
        content = b"".join(blocks)
        self._group.append(NewFile(path, content, modified_ns))
        self._group_bytes += len(content)
        if len(self._group) >= _GROUP_FILES or self._group_bytes >= _GROUP_BYTES:
            self._flush()

    def _stream(self, path: str, modified_ns: int | None, blocks: Iterator[bytes]) -> None:
        entry = self._writer.open(path, modified_ns)
        written = 0
        try:
            for block in blocks:
                entry.write(block)
                written += len(block)
                self._progress.advance(0, len(block))
        except BaseException:
            entry.abandon()
            self._progress.advance(0, -written)
            raise
        entry.close()
        self._progress.advance(1, 0)
        self._count(1, written)

    def _flush(self) -> None:
        files, self._group, self._group_bytes = self._group, [], 0
        while files:
            count = len(self._writer.add_all(files, UNLIMITED))
            if not count:  # there is no room, as this says
                self._writer.add(files[0].path, files[0].content, files[0].modified_ns)
                count = 1
            size_bytes = sum(len(file.content) for file in files[:count])
            self._progress.advance(count, size_bytes)
            self._count(count, size_bytes)
            files = files[count:]

    def _count(self, files: int, size_bytes: int) -> None:
        self.files += files
        self.bytes += size_bytes

    def finish(self) -> None:
        """Nothing can be taken afterwards. Raises OutputFailed."""
        self._flush()
        self.size_bytes = self._writer.finalize().size_bytes

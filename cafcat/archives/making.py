"""Writes a new archive as a local file. The file appears complete and durable, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO, Final

from cafcat.errors import OutputFailed
from cafcat.formats.base import UNLIMITED, Format, Writer
from cafcat.model import NewFile
from cafcat.progress import Progress
from cafcat.reading.output_errors import disk_errors
from cafcat.reading.outputs import Output, new_output
from cafcat.reading.reader import FileReader
from cafcat.reading.request import ReadRequest
from cafcat.support.new_file import write_all

__all__ = ["FileSink", "NewArchive", "StreamSink", "new_archive", "new_file", "new_sink"]

_WHOLE_FILE_BYTES: Final = 1 << 20
"""Files up to this size in bytes are read completely and written in groups; larger files are streamed."""
_GROUP_FILES: Final = 256
"""Number of files after which a group is written."""
_GROUP_BYTES: Final = 1 << 20
"""Size in bytes after which a group is written."""


class FileSink:
    """A HeadSink that writes a new archive into an open file. Methods raise OutputFailed if the file fails.

    Attributes:
        size_bytes: number of bytes appended so far.
    """

    def __init__(self, file: int, label: str) -> None:
        """Prepare to write into an open file.

        Args:
            file: descriptor of the file. The sink does not close it.
            label: name of the file in messages.
        """
        self._file = file
        self._label = label
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """Append the bytes to the archive."""
        with disk_errors(self._label):
            write_all(self._file, data)
        self.size_bytes += len(data)

    def cut(self, size_bytes: int) -> None:
        """Remove all bytes of the archive after the first `size_bytes`."""
        with disk_errors(self._label):
            os.ftruncate(self._file, size_bytes)
            os.lseek(self._file, size_bytes, os.SEEK_SET)
        self.size_bytes = size_bytes

    def rewrite_head(self, data: bytes) -> None:
        """Overwrite the first bytes of the archive. No bytes may be appended afterwards."""
        with disk_errors(self._label):
            os.lseek(self._file, 0, os.SEEK_SET)
            write_all(self._file, data)


class StreamSink:
    """A Sink that writes a new archive into a stream, such as standard output, whose bytes cannot be changed again.

    Attributes:
        size_bytes: number of bytes written so far.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """Prepare to write into a binary file object. The sink does not close it."""
        self._stream = stream
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """Append the bytes to the archive.

        Raises:
            OutputFailed: the stream fails. The reader's end of a pipe raises BrokenPipeError.
        """
        rest = memoryview(data)
        try:
            while rest:
                written = self._stream.write(rest)
                if not written:
                    raise OutputFailed("the output did not take all bytes", hint="give a blocking binary stream")
                rest = rest[written:]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(f"the output cannot be written: {error.strerror or error}") from error
        self.size_bytes += len(data)


@contextmanager
def new_sink(output: Output | BinaryIO) -> Iterator[FileSink | StreamSink]:
    """Provide a sink for a new file, as `new_file` does, or for a stream."""
    if isinstance(output, Output):
        with new_file(output) as sink:
            yield sink
    else:
        yield StreamSink(output)


@contextmanager
def new_file(output: Output) -> Iterator[FileSink]:
    """Provide a sink for a new file, which gets its name, durably, when the context ends without an error.

    If the `with` block raises, the temporary file is removed, and an existing file of this name stays unchanged.

    Raises:
        Conflict: the file exists and must not be overwritten, or a folder has its name.
        InvalidInput: the output is a device, pipe or socket, or the file system cannot have such a name.
        OutputFailed: the file cannot be written.
    """
    with new_output(output) as file:
        yield FileSink(file, output.shown)


@contextmanager
def new_archive(output: Output | BinaryIO, archive_format: Format, *, progress: Progress) -> Iterator["NewArchive"]:
    """Provide an object that writes a new archive into a new file, or into a stream.

    When the context ends without an error, the archive is finalized, and the file gets its name, durably. If the
    `with` block raises, the temporary file is removed, and an existing file of this name stays unchanged.

    Args:
        output: the file to write, or a stream.
        archive_format: format of the archive.
        progress: receives the number of files and bytes.

    Raises:
        Conflict: the file exists and must not be overwritten, or a folder has its name.
        InvalidInput: the output is a device, pipe or socket, or the file system cannot have such a name.
        OutputFailed: the file cannot be written.
        Refused: the format cannot store the name of a collected file, or the archive is full.
        StoreFailed: a temporary file of the format's writer failed.
        Unsupported: archives of the format can only be read, or cannot be written into a stream.
        NotInstalled: a library that the format needs is not installed.
    """
    with new_sink(output) as sink:
        archive = NewArchive(archive_format.writer(sink), progress)
        yield archive
        archive.finalize()


class NewArchive:
    """An archive that is being written, file by file, in the order of `add`.

    Memory: 2 MiB, plus the memory of the writer.

    Attributes:
        file_count: number of files written so far. Small files are written in groups, so it can lag behind `add`.
        content_bytes: total size of these files in bytes.
        size_bytes: size of the finished archive in bytes; 0 before `finalize`.
    """

    def __init__(self, writer: Writer, progress: Progress) -> None:
        """Prepare to add files.

        Args:
            writer: the format's writer for this archive.
            progress: receives the number of files and bytes.
        """
        self._writer = writer
        self._progress = progress
        self._group: list[NewFile] = []
        self._group_bytes = 0
        self.file_count = self.content_bytes = self.size_bytes = 0

    def save(self, reader: FileReader, request: ReadRequest, blocks: Iterator[bytes]) -> None:
        """Add a whole file of the catalog, whose content is compared with its checksum.

        Args:
            reader: reads the file from a copy if it proves to be damaged.
            request: the file.
            blocks: its bytes, as `FileReader.files` returns them.

        Raises:
            CafcatError: the file cannot be read, as `FileReader.stream` raises it, or added, as `add` raises it.
        """
        location = request.location
        reader.save(request, blocks, partial(self.add, location.path, location.size_bytes, location.modified_ns))

    def add(self, path: str, size_bytes: int, modified_ns: int | None, blocks: Iterator[bytes]) -> None:
        """Add a file to the archive.

        If `blocks` raises, the file is not added and may be added again later. Bytes already written stay in the
        archive as dead bytes.

        Args:
            path: name of the entry.
            size_bytes: expected size in bytes; `blocks` may have another size. A file of more than 1 MiB is written
                block by block. Other files are collected, and written in groups: after 256 files or 1 MiB.
            modified_ns: modification time in nanoseconds since 1970-01-01 UTC, or None.
            blocks: the content of the file.

        Raises:
            Refused: the format cannot store the name of this file, or of an earlier file that was collected, or the
                archive is full. Collected files that are not written yet are then discarded.
            OutputFailed: the archive cannot be written. Errors of `blocks` pass through.
            StoreFailed: a temporary file of the writer failed, or an earlier call failed to write.
        """
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
            if not count:  # the archive is full: add() raises the right error
                self._writer.add(files[0].path, files[0].content, files[0].modified_ns)
                count = 1
            size_bytes = sum(len(file.content) for file in files[:count])
            self._progress.advance(count, size_bytes)
            self._count(count, size_bytes)
            files = files[count:]

    def _count(self, file_count: int, content_bytes: int) -> None:
        self.file_count += file_count
        self.content_bytes += content_bytes

    def finalize(self) -> None:
        """Write the collected files and finish the archive. No files can be added afterwards.

        Raises:
            Refused: the format cannot store the name of a collected file, or the archive is full.
            OutputFailed: the archive cannot be written.
            StoreFailed: a temporary file of the writer failed, or an earlier call failed to write.
            InvalidInput: the archive is finished already.
        """
        self._flush()
        self.size_bytes = self._writer.finalize().size_bytes

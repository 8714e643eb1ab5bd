"""Writes a tar or zip, which any receiver can open, file by file, into a new file or into a stream."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from cafcat.archives.making import FileSink, StreamSink, new_sink
from cafcat.progress import Progress
from cafcat.reading.archive_stream import member_writer, spooled
from cafcat.reading.outputs import Output
from cafcat.reading.reader import FileReader
from cafcat.reading.request import ReadRequest

__all__ = ["MemberArchive", "new_members"]

_WHOLE_FILE_BYTES: Final = 1 << 20
"""Files up to this size in bytes are read completely, and written together; larger files are streamed."""
_GROUP_BYTES: Final = 256 << 10
"""Bytes of small files that are written at once."""
_BLOCK_BYTES: Final = 256 << 10


@contextmanager
def new_members(output: Output | BinaryIO, format: str, *, progress: Progress) -> Iterator["MemberArchive"]:
    """Provide an object that writes a new tar or zip.

    When the context ends without an error, the archive gets its end, and a file gets its name, durably. If the
    `with` block raises, nothing is left of a new file, and a stream has the archive without its end.

    Args:
        output: The file to write, or a stream.
        format: "tar" or "zip".
        progress: Receives the number of files and bytes.

    Raises:
        Conflict: The file exists and must not be overwritten, or a folder has its name.
        InvalidInput: The output is a device, pipe or socket, or the file system cannot have such a name.
        OutputFailed: The output cannot be written.
        TemporaryFileFailed: A temporary file failed.
    """
    with new_sink(output) as sink:
        archive = MemberArchive(sink, format, progress)
        yield archive
        archive.finalize()


class MemberArchive:
    """A tar or zip that is being written, file by file, in the order of `save`. It is not compressed.

    Attributes:
        file_count: Number of files so far.
        content_bytes: Total size of these files in bytes.
        size_bytes: Size of the finished archive in bytes; 0 before `finalize`.
    """

    def __init__(self, sink: FileSink | StreamSink, format: str, progress: Progress) -> None:
        """Begin an archive without files.

        Args:
            sink: Receives the bytes.
            format: "tar" or "zip".
            progress: Receives the number of files and bytes.
        """
        self._sink = sink
        self._members = member_writer(format)
        self._progress = progress
        self._group = bytearray()
        self.file_count = self.content_bytes = self.size_bytes = 0

    def save(self, reader: FileReader, request: ReadRequest, blocks: Iterator[bytes]) -> None:
        """Add a whole file, whose content is compared with its checksum.

        No byte of a file in a zip, or of a file up to 1 MiB, is written before the file has proved to be undamaged.
        A larger file of a tar may prove to be damaged only at its end. Then a new file is cut, and the content of a
        copy is written; in a stream, the damage is an error.

        Args:
            reader: Reads the file from a copy if it proves to be damaged.
            request: The file.
            blocks: Its bytes, as `FileReader.files` returns them.

        Raises:
            CafcatError: The file cannot be read, as `FileReader.stream` raises it.
            OutputFailed: The archive cannot be written.
        """
        size_bytes = request.location.size_bytes
        if size_bytes <= _WHOLE_FILE_BYTES:
            self._add_small(request, reader.save(request, blocks, b"".join))
        elif self._members.needs_checksum:
            self._add_spooled(reader, request, blocks)
        else:
            self._add_streamed(reader, request, blocks)
        self.file_count += 1
        self.content_bytes += size_bytes
        self._progress.advance(1, 0)

    def _add_small(self, request: ReadRequest, data: bytes) -> None:
        self._group += self._header(request, zlib.crc32(data) if self._members.needs_checksum else 0)
        self._group += data
        self._group += self._members.trailer(len(data))
        self._progress.advance(0, len(data))
        if len(self._group) >= _GROUP_BYTES:
            self._flush()

    def _add_spooled(self, reader: FileReader, request: ReadRequest, blocks: Iterator[bytes]) -> None:
        checked = reader.save(request, blocks, spooled)
        with checked.spool as spool:
            self._group += self._header(request, checked.crc32)
            self._flush()
            self._write(spool.blocks_from(0, _BLOCK_BYTES))
        self._group += self._members.trailer(request.location.size_bytes)

    def _add_streamed(self, reader: FileReader, request: ReadRequest, blocks: Iterator[bytes]) -> None:
        self._group += self._header(request, 0)
        self._flush()
        sink, start = self._sink, self._sink.size_bytes

        def write(blocks: Iterator[bytes]) -> None:
            if isinstance(sink, FileSink) and sink.size_bytes > start:
                self._progress.advance(0, start - sink.size_bytes)
                sink.cut(start)
            self._write(blocks)

        reader.save(request, blocks, write, can_restart=isinstance(sink, FileSink))
        self._group += self._members.trailer(request.location.size_bytes)

    def _header(self, request: ReadRequest, crc32: int) -> bytes:
        location = request.location
        return self._members.header(location.path, location.size_bytes, location.modified_ns, crc32)

    def _write(self, blocks: Iterator[bytes]) -> None:
        for block in blocks:
            self._sink.write(block)
            self._progress.advance(0, len(block))

    def _flush(self) -> None:
        self._sink.write(bytes(self._group))
        self._group.clear()

    def finalize(self) -> None:
        """Write the end of the archive. No files can be added afterwards.

        Raises:
            OutputFailed: The archive cannot be written.
            TemporaryFileFailed: The directory of a zip was in a temporary file, which failed.
        """
        self._flush()
        for block in self._members.end():
            self._sink.write(block)
        self.size_bytes = self._sink.size_bytes

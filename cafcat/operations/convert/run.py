"""Writes the contents of an archive into a new archive, of another format or the same one."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from cafcat.archives.choosing import format_of_output
from cafcat.archives.making import new_archive, new_file
from cafcat.archives.opening import OpenArchive
from cafcat.archives.ordering import EntriesByOffset
from cafcat.formats import registry as formats
from cafcat.formats.base import Format, HasRemarks, RandomReader, ReassemblableFormat
from cafcat.model import Entry
from cafcat.progress import Progress
from cafcat.reading.outputs import Output

__all__ = ["ConvertReport", "convert_archive"]

_LISTED_FILES: Final = 1000
"""Number of listed files after which progress is reported."""


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """Totals of one `cafcat convert`.

    Attributes:
        input: Name of the archive that was read.
        input_format: Its format.
        output: Path of the new archive.
        format: Format of the new archive.
        files: Number of files; of an archive of logs, number of sections.
        bytes: Bytes of their contents.
        size_bytes: Size of the new archive.
    """

    input: str
    input_format: str
    output: str
    format: str
    files: int
    bytes: int
    size_bytes: int


def convert_archive(archive: OpenArchive, output: Output, name: str | None, *, progress: Progress) -> ConvertReport:
    """Write the contents of an archive into a new archive, which appears complete and durable, or not at all.

    Args:
        archive: The archive to read.
        output: The file to write.
        name: Name of the new format; None to derive it from the name of the output.
        progress: Receives progress and warnings. Its `stopping` and `checkpoint` are not used.

    Raises:
        InvalidInput: No format has the name, or fits the name of the output.
        Corrupt: The archive is damaged.
        Unsupported, NotInstalled: The archive cannot be read, or the new format cannot be written.
        NotFound, StoreFailed, AccessDenied: The store of the archive does not return its bytes.
        Refused: The new format cannot store a file of the archive, because of its name or size.
        Conflict, OutputFailed: The output exists already, or cannot be written.
        Conflict: The archive was changed while it was read.
    """
    target = format_of_output(output.path, name)
    source = archive.format
    try:
        if isinstance(source, ReassemblableFormat) and source.name == target.name:
            files, content_bytes, size_bytes = _repack(
                source, next(archive.parts()).archive, output, progress=progress
            )
        else:
            files, content_bytes, size_bytes = _rewrite(
                archive, formats.for_writing(target.name), output, progress=progress
            )
    finally:
        progress.end()
    return ConvertReport(
        archive.name, source.name, str(output.path.absolute()), target.name, files, content_bytes, size_bytes
    )


def _rewrite(archive: OpenArchive, target: Format, output: Output, *, progress: Progress) -> tuple[int, int, int]:
    """Copy an archive file by file into a new archive.

    Returns:
        Number of files, bytes of their contents, and size of the new archive.
    """
    with new_archive(output, target, progress=progress) as made:
        for _, reader in archive.parts():
            progress.begin("list")
            with closing(EntriesByOffset(_listed(reader.entries(), progress))) as entries:
                progress.begin("convert", files=entries.count, size_bytes=entries.size_bytes)
                for entry in entries:
                    made.add(entry.path, entry.size_bytes, entry.modified_ns, reader.open(entry))
            for remark in reader.remarks() if isinstance(reader, HasRemarks) else ():
                progress.warn(f"{archive.name}: {remark.message}")
    return made.file_count, made.content_bytes, made.size_bytes


def _repack(
    source: ReassemblableFormat, archive: RandomReader, output: Output, *, progress: Progress
) -> tuple[int, int, int]:
    """Write an archive into a new archive of the same format, as a whole, not file by file.

    Returns:
        Number of sections of the archive, bytes of their contents, and size of the new archive.
    """
    entries = list(source.reader(archive).entries())
    content_bytes = sum(entry.size_bytes for entry in entries)
    progress.begin("convert", size_bytes=archive.size_bytes)
    with new_file(output) as sink:
        for block in source.reassemble(archive):
            sink.write(block)
            progress.advance(0, len(block))
    return len(entries), content_bytes, sink.size_bytes


def _listed(entries: Iterable[Entry], progress: Progress) -> Iterator[Entry]:
    for number, entry in enumerate(entries, 1):
        yield entry
        if not number % _LISTED_FILES:
            progress.advance(_LISTED_FILES, 0)

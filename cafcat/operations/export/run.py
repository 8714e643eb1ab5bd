"""Writes files of the catalog into one new archive outside the stores."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from cafcat.archives.choosing import MEMBER_FORMATS, export_format, format_of_suffix
from cafcat.archives.making import NewArchive, new_archive
from cafcat.archives.members import MemberArchive, new_members
from cafcat.formats import registry as formats
from cafcat.model import Location
from cafcat.progress import Progress
from cafcat.reading.outputs import Output
from cafcat.reading.plan import range_reads
from cafcat.reading.reader import FileReader
from cafcat.reading.request import ReadRequest
from cafcat.reading.selecting import select
from cafcat.session import Session

if TYPE_CHECKING:
    from collections.abc import Generator

    from cafcat.catalog.files.exporting import Export

__all__ = ["ExportReport", "export_archive"]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Totals of one `cafcat export`.

    Attributes:
        output: Path of the archive; "-" for a stream.
        format: Format of the archive.
        made_at: The moment as of which the catalog was exported, ISO 8601 in UTC.
        prefixes: Folders, files and patterns that were exported; empty for the whole catalog.
        files: Number of files.
        bytes: Bytes of their contents.
        size_bytes: Size of the archive.
    """

    output: str
    format: str
    made_at: str
    prefixes: tuple[str, ...]
    files: int
    bytes: int
    size_bytes: int


def export_archive(
    session: Session, reader: FileReader, names: Sequence[str], output: Output | BinaryIO, format: str | None
) -> ExportReport:
    """Write files of the catalog, as of one moment, into one archive. A file appears complete, or not at all.

    Args:
        session: The session.
        reader: Reads the files.
        names: Folders, files and patterns; empty for the whole catalog.
        output: The file to write, or a stream.
        format: Name of the format; None to derive it from the name of the output.

    Raises:
        NotFound: The catalog has no file for one of the names.
        Corrupt: The bytes of a file are damaged in its chunk and in every copy.
        InvalidInput: No format has the name, or fits the name of the output.
        Unsupported, NotInstalled: The format cannot be written, or a file cannot be decoded.
        Refused: The format cannot store a file, because of its name or size.
        Conflict, OutputFailed: The output exists already, or cannot be written.
        Conflict: An object was replaced while it was read.
        AccessDenied, StoreFailed: A store does not return the bytes of a file.
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    progress = session.progress
    name = export_format(output.path if isinstance(output, Output) else None, format, names)
    if isinstance(output, Output) and (suffix := format_of_suffix(output.path)) not in (None, name):
        session.warn(f"{output.path.name} has the suffix of {suffix}, but is written as {name}")
    try:
        with _new(output, name, progress) as made, session.catalog.export() as found:
            _add_all(found, reader, names, made, progress)
    finally:
        progress.end()
    return ExportReport(
        str(output.path.absolute()) if isinstance(output, Output) else "-",
        name,
        found.taken_at,
        tuple(names),
        made.file_count,
        made.content_bytes,
        made.size_bytes,
    )


def _new(
    output: Output | BinaryIO, name: str, progress: Progress
) -> AbstractContextManager[MemberArchive] | AbstractContextManager[NewArchive]:
    """Return a context that provides the new archive."""
    if name in MEMBER_FORMATS:
        return new_members(output, name, progress=progress)
    return new_archive(output, formats.for_writing(name), progress=progress)


def _add_all(
    found: "Export",
    reader: FileReader,
    names: Sequence[str],
    made: MemberArchive | NewArchive,
    progress: Progress,
) -> None:
    selection = select(found, names or [""])
    if selection.missing:
        raise selection.errors()[0][1]
    files, size_bytes = found.totals(selection.ranges)
    progress.begin("export", files=files, size_bytes=size_bytes)
    with closing(found.files(selection.ranges)) as locations:
        _add(locations, reader, made)


def _add(
    locations: "Generator[Location, None, None]", reader: FileReader, made: MemberArchive | NewArchive
) -> None:
    """Add files to the archive, in the order of their bytes.

    A file without readable replica ends the export: a reader of the archive could not see that the file is missing.
    """
    requests = (ReadRequest.of(location.path, location) for location in locations)
    with closing(reader.files(range_reads(requests, reader.stores))) as files:
        for request, blocks in files:
            made.save(reader, request, blocks)

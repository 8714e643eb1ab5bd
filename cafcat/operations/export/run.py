"""Writes files of the catalog into one new archive outside the stores."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cafcat.archives.choosing import format_of_output
from cafcat.archives.making import NewArchive, new_archive
from cafcat.errors import NotFound
from cafcat.formats import registry as formats
from cafcat.model import NO_SUCH_PREFIX, Location
from cafcat.progress import Progress
from cafcat.reading.outputs import Output
from cafcat.reading.plan import range_reads
from cafcat.reading.reader import FileReader
from cafcat.reading.request import ReadRequest
from cafcat.session import Session
from cafcat.support.paths import file_of, folder_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from cafcat.catalog.files.exporting import Export

__all__ = ["ExportReport", "export_archive"]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Totals of one `cafcat export`.

    Attributes:
        output: Path of the archive.
        format: Format of the archive.
        made_at: The moment as of which the catalog was exported, ISO 8601 in UTC.
        prefixes: Folders and files that were exported; empty for the whole catalog.
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
    session: Session, reader: FileReader, prefixes: Sequence[str], output: Output, name: str | None
) -> ExportReport:
    """Write files of the catalog, as of one moment, into one archive, which appears complete, or not at all.

    Args:
        session: The session.
        reader: Reads the files.
        prefixes: Folders and files; empty for the whole catalog.
        output: The file to write.
        name: Name of the format; None to derive it from the name of the output.

    Raises:
        NotFound: The catalog has no such folder or file.
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
    target = formats.for_writing(format_of_output(output.path, name).name)
    try:
        with (
            new_archive(output, target, progress=progress) as made,
            session.catalog.export() as found,
        ):
            _add_all(found, reader, prefixes, made, progress)
    finally:
        progress.end()
    return ExportReport(
        str(output.path.absolute()),
        target.name,
        found.taken_at,
        tuple(prefixes),
        made.file_count,
        made.content_bytes,
        made.size_bytes,
    )


def _add_all(
    found: "Export", reader: FileReader, prefixes: Sequence[str], made: NewArchive, progress: Progress
) -> None:
    from cafcat.catalog.files.lookup import PathScope

    scopes = [PathScope(folder_of(prefix), file_of(prefix)) for prefix in prefixes or [""]]
    absent = found.first_absent(scopes)
    if absent is not None:
        raise NotFound(NO_SUCH_PREFIX, path=prefixes[absent])
    files, size_bytes = found.totals(scopes)
    progress.begin("export", files=files, size_bytes=size_bytes)
    with closing(found.files(scopes)) as locations:
        _add(locations, reader, made)


def _add(locations: "Generator[Location, None, None]", reader: FileReader, made: NewArchive) -> None:
    """Add files to the archive, in the order of their bytes.

    A file without readable replica ends the export: a reader of the archive could not see that the file is missing.
    """
    requests = (ReadRequest.of(location.path, location) for location in locations)
    with closing(reader.files(range_reads(requests, reader.stores))) as files:
        for request, blocks in files:
            location = request.location
            write = partial(made.add, location.path, location.size_bytes, location.modified_ns)
            reader.save(request, blocks, write)

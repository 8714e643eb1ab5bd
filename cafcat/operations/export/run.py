"""Files of the catalog as one archive, to hand over."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cafcat.archives.choosing import format_of_output
from cafcat.archives.making import NewArchive, new_archive
from cafcat.errors import NotFound
from cafcat.formats import registry as formats
from cafcat.model import Location
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
    """What was written: number of files, `bytes` of their contents, size_bytes of the archive. made_at: the moment
    whose catalog it is, ISO 8601 in UTC."""

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
    """Write an archive: see Repository.export. `name` is the name of the format."""
    progress = session.progress
    target = formats.for_writing(format_of_output(output.path, name).name)
    try:
        with (
            new_archive(output, target, progress=progress) as made,
            session.catalog.export() as found,
        ):
            _take_all(found, reader, prefixes, made, progress)
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


def _take_all(
    found: "Export", reader: FileReader, prefixes: Sequence[str], made: NewArchive, progress: Progress
) -> None:
    from cafcat.catalog.files.lookup import PathScope

    places = [PathScope(folder_of(prefix), file_of(prefix)) for prefix in prefixes or [""]]
    absent = found.first_absent(places)
    if absent is not None:
        raise NotFound("the catalog has no such file or folder", path=prefixes[absent])
    files, size_bytes = found.totals(places)
    progress.begin("export", files=files, size_bytes=size_bytes)
    with closing(found.files(places)) as locations:
        _take(locations, reader, made)


def _take(locations: "Generator[Location, None, None]", reader: FileReader, made: NewArchive) -> None:
    """What cannot be had whole, not even from a copy, ends it: who gets the archive could not see what is
    missing."""
    requests = (ReadRequest.of(location.path, location) for location in locations)
    with closing(reader.files(range_reads(requests, reader.store_of))) as files:
        for request, blocks in files:
            location = request.location
            write = partial(made.add, location.path, location.size_bytes, location.modified_ns)
            reader.save(request, blocks, write)

"""Reads the indexes of chunks for a rebuild: of each chunk from the first store that has a right object of it."""

from collections.abc import Sequence
from typing import NamedTuple

from cafcat.catalog.files.mapping import Mapping
from cafcat.catalog.transfer.rebuilding import FoundObject, PlannedChunk
from cafcat.errors import (
    CafcatError,
    Corrupt,
    NotFound,
    ServerFailed,
    StoreFailed,
    TemporaryFileFailed,
    Unsupported,
)
from cafcat.formats import registry as formats
from cafcat.formats.base import Format
from cafcat.model import ArchiveUnits, ChunkSummary
from cafcat.operations.index_reading import read_index
from cafcat.operations.index_rules import own_prefix, units_in
from cafcat.operations.index_section import head_of
from cafcat.stores.base import Store, StoredObject
from cafcat.support.quantities import plural

__all__ = [
    "Failure",
    "FoundContents",
    "ReadChunk",
    "failure_of_object",
    "format_of",
    "index_size",
    "read_chunk",
]


class Failure(NamedTuple):
    """An object of a chunk or journal record that could not be read, is damaged, or differs from its record.

    Attributes:
        name: Path or URL of the object.
        message: Message of the error.
    """

    name: str
    message: str


class FoundContents(NamedTuple):
    """The object that was chosen for a chunk, and the contents of its index.

    Attributes:
        object: The object.
        summary: Its sizes and checksums.
        mapping: The entries of its index.
        units: The log files and times of an archive of logs.
    """

    object: FoundObject
    summary: ChunkSummary
    mapping: Mapping
    units: ArchiveUnits


class ReadChunk(NamedTuple):
    """Result of reading a chunk.

    Attributes:
        planned: The chunk.
        found: The object and the contents of its index; None if no store has a right one.
        failures: Damage in the stores that were tried.
    """

    planned: PlannedChunk
    found: FoundContents | None
    failures: Sequence[Failure]

    def close(self) -> None:
        """Free the entries of the index and their temporary file. Idempotent."""
        if self.found is not None:
            self.found.mapping.close()


def read_chunk(stores: Sequence[Store], planned: PlannedChunk) -> ReadChunk:
    """Read the index of a chunk from the first store that has a right object of it, and return the result.

    Args:
        stores: The stores, in the order of the rebuild.
        planned: The chunk.

    Raises:
        ServerFailed: A store is out of reach, or denies access.
        TemporaryFileFailed: A temporary file cannot be written.
    """
    failures: list[Failure] = []
    for found in planned.objects:
        mapping = Mapping(planned.id)
        try:
            summary, units = _read_object(stores[found.store], planned, found, mapping)
        except (NotFound, Corrupt, Unsupported, StoreFailed) as error:
            mapping.close()
            failures.append(Failure(stores[found.store].locate(found.object_key), failure_of_object(error)))
        except BaseException:
            mapping.close()
            raise
        else:
            return ReadChunk(planned, FoundContents(found, summary, mapping, units), failures)
    return ReadChunk(planned, None, failures)


def _read_object(
    store: Store, planned: PlannedChunk, found: FoundObject, mapping: Mapping
) -> tuple[ChunkSummary, ArchiveUnits]:
    """Read the index of a chunk from one object. Raises Corrupt if the object differs from the journal record."""
    name = store.locate(found.object_key)
    if planned.size_bytes not in (None, found.size_bytes):
        message = f"the object has {found.size_bytes} bytes, but {planned.size_bytes} in its journal record"
        raise Corrupt(message, chunk=name)
    archive_format = format_of(planned, found)
    start, end = planned.index_start_byte, planned.index_end_byte
    span = None if start is None or end is None else (start, end)
    archive = StoredObject(store, found.object_key, size_bytes=found.size_bytes)
    head = head_of(store, found.object_key, found.size_bytes, archive_format)
    prefix = own_prefix(archive_format, found.object_key)
    summary = read_index(archive, archive_format, mapping, span, head=head, prefix=prefix)
    if planned.file_count not in (None, summary.file_count):
        message = (
            f"its index has {plural(summary.file_count, 'file')}, but {planned.file_count} in its journal record"
        )
        raise Corrupt(message, chunk=name)
    if planned.index_crc32c not in (None, summary.index_crc32c):
        message = f"its index has CRC-32C {summary.index_crc32c:08x} instead of {planned.index_crc32c:08x}"
        raise Corrupt(message, chunk=name)
    return summary, units_in(archive_format, archive)


def format_of(planned: PlannedChunk, found: FoundObject) -> Format:
    """Return the format of a chunk: that in its journal record, or without a record that of its key's suffix.

    Raises:
        Unsupported: This version of cafcat does not know the format.
    """
    return formats.by_suffix(found.object_key) if planned.format is None else formats.by_name(planned.format)


def index_size(planned: PlannedChunk) -> int:
    """Return the size of a chunk's index in bytes; 0 if it is unknown."""
    return (planned.index_end_byte or 0) - (planned.index_start_byte or 0)


def failure_of_object(error: CafcatError) -> str:
    """Return the message of an error that concerns one object.

    An error that concerns a whole server, or a temporary file, is raised.
    """
    if isinstance(error, ServerFailed | TemporaryFileFailed):
        raise error
    return str(error)

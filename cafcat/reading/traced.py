"""A FileReader that records spans of OpenTelemetry. The usual one has no code for them, and costs nothing more."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cafcat.model import Location
from cafcat.progress import Progress
from cafcat.reading.content import check, decoded
from cafcat.reading.reader import FileReader
from cafcat.reading.replicas import Replica
from cafcat.reading.request import ReadRequest
from cafcat.stores.base import Store
from cafcat.support.checksums import crc32c
from cafcat.support.tracing import begin, enable

if TYPE_CHECKING:
    from cafcat.reading.lookup import LocationCatalog

__all__ = ["TracedReader"]


class TracedReader(FileReader):
    """Reads files as FileReader does. Each look-up, read, range read and check is a span."""

    def __init__(self, catalog: "LocationCatalog", stores: Mapping[str, Store], progress: Progress) -> None:
        """Create a reader, as FileReader does, and turn spans on.

        Raises:
            NotInstalled: OpenTelemetry is missing.
        """
        super().__init__(catalog, stores, progress)
        enable()

    def read_path(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Look a file up and read it, in one span."""
        with begin("read_path") as found:
            data = super().read_path(path, start, end)
            found.set(size_bytes=len(data))
            return data

    def locate(self, path: str) -> Location:
        """Look a file up."""
        with begin("locate") as found:
            location = super().locate(path)
            found.set(chunk=str(location.chunk), size_bytes=location.size_bytes)
            return location

    def read(self, request: ReadRequest) -> bytes:
        """Read a file: the range read and the check are spans inside."""
        chunk = str(request.location.chunk)
        with begin("read", chunk=chunk, start_byte=request.start_byte, end_byte=request.end_byte):
            return super().read(request)

    def _read_from(self, replica: Replica | Location, request: ReadRequest) -> bytes:
        with begin("range_read", store=replica.store, object=replica.object_key) as found:
            data = self.stores[replica.store].read(replica.object_key, request.start_byte, request.end_byte)
            found.set(size_bytes=len(data))
        with begin("check", size_bytes=len(data)):
            if request.decoded_range is not None:
                return decoded(request, data)
            if request.is_whole:
                check(request.location, crc32c(data))
            return data

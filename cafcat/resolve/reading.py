"""One file: one query, one range read, and its checksum before anybody relies on the bytes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cafcat.catalog.catalog import Catalog
from cafcat.checksums import crc32c
from cafcat.errors import Corrupt, InvalidInput, NotFound
from cafcat.model import Location
from cafcat.stores.base import Store

__all__ = ["Reading", "check"]


def check(location: Location, found: int) -> None:
    """Raises Corrupt unless `found` is the CRC-32C that the catalog has of the file."""
    if found != location.crc32c:
        message = f"the file's bytes are damaged: CRC-32C {found:08x} where the catalog has {location.crc32c:08x}"
        raise Corrupt(message, path=location.path, chunk=str(location.chunk), byte=location.start_byte)


class Reading:
    """Reads files by path."""

    def __init__(self, catalog: Catalog, store_of: Callable[[str], Store]) -> None:
        """`store_of` gives the store of a URL in `chunks.store`."""
        self._catalog = catalog
        self._store_of = store_of

    def locate(self, path: str) -> Location:
        """One query. A leading "./" or "/" is dropped if the catalog has no such name. Raises NotFound."""
        try:
            return self._catalog.files.locate(path)
        except NotFound:
            name = path.removeprefix("./").lstrip("/")
            if name != path:
                return self.locate(name)
            if self._catalog.files.page(f"{path}/", limit=1):
                hint = "use ls, find or extract"
                raise NotFound("this is a folder of the catalog, not a file", path=path, hint=hint) from None
            raise

    def object_of(self, location: Location) -> str:
        """Absolute path or URL of the archive."""
        return self._store_of(location.store).locate(location.object_key)

    def read(self, location: Location, start: int = 0, end: int | None = None) -> bytes:
        """Bytes `[start, end)` of the file, cut at its end; a negative start counts from the end. All of it is
        checked against its checksum, a part cannot be. Raises Corrupt, InvalidInput if the range begins beyond
        the file."""
        first, last = _span(location, start, end)
        with _missing_is_damage(location):
            data = self._store_of(location.store).read(location.object_key, first, last)
        if last - first == location.size_bytes:
            check(location, crc32c(data))
        return data

    def stream(self, location: Location, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB. The last block of a whole file comes only if the checksum is
        right; until then the bytes are unproven."""
        first, last = _span(location, start, end)
        blocks = self._blocks(location, first, last)
        return self._checked(location, blocks) if last - first == location.size_bytes else blocks

    def _blocks(self, location: Location, first: int, last: int) -> Iterator[bytes]:
        with _missing_is_damage(location):
            yield from self._store_of(location.store).stream(location.object_key, first, last)

    def _checked(self, location: Location, blocks: Iterator[bytes]) -> Iterator[bytes]:
        checksum = 0
        held = b""
        for block in blocks:
            if held:
                yield held
            checksum = crc32c(block, checksum)
            held = block
        check(location, checksum)
        if held:
            yield held


@contextmanager
def _missing_is_damage(location: Location) -> Iterator[None]:
    """The catalog has the file: an object that is not there is damage, not a wrong name."""
    try:
        yield
    except NotFound as error:
        where = {"path": location.path, "chunk": str(location.chunk), "byte": location.start_byte}
        raise Corrupt(f"the chunk is not where it was: {error.message}", **where) from error  # type: ignore[arg-type]


def _span(location: Location, start: int, end: int | None) -> tuple[int, int]:
    """Bytes of the chunk for a range of the file."""
    size = location.size_bytes
    first = max(0, size + start) if start < 0 else start
    last = size if end is None else min(end, size)
    if end is not None and end < first:
        raise InvalidInput(f"a range of {start} to {end} makes no sense", path=location.path)
    if first > size or (first == size and size > 0):
        raise InvalidInput(f"the range begins at {first}, the file has {size} bytes", path=location.path)
    return location.start_byte + first, location.start_byte + last

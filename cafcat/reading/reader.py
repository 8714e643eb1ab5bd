"""One file: one query, one range read, and its checksum before anybody relies on the bytes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID

from cafcat.errors import CafcatError, Corrupt, InvalidInput, NotFound
from cafcat.model import LOOKED_UP_PATHS, Location
from cafcat.reading.checking import Damaged, check, checked
from cafcat.reading.decoding import decoded, decoded_blocks
from cafcat.reading.replicas import FAILURES, Replica, ReplicaAttempts, Replicas
from cafcat.reading.request import ReadRequest
from cafcat.stores.base import Store
from cafcat.support.checksums import crc32c
from cafcat.support.paths import is_text

if TYPE_CHECKING:
    from cafcat.reading.location_catalog import LocationCatalog
    from cafcat.reading.plan import RangeRead

__all__ = ["Reading"]

HELD_BYTES: Final = 8 << 20
"""A file up to this size is checked before its first byte is handed out: a copy can still give it."""


class Reading:
    """Reads files by path: from the chunk's own object, and where that fails from a copy of it."""

    def __init__(
        self, catalog: "LocationCatalog", store_of: Callable[[str], Store], warn: Callable[[str], object]
    ) -> None:
        """`store_of` gives the store of a URL in `chunks.store`; `warn` is told once of each chunk, or store, of
        which copies are read."""
        self._catalog = catalog
        self._places = Replicas(self._places_of, store_of, warn)
        self.store_of = store_of

    def _places_of(self, chunk: UUID) -> list[tuple[str, str]]:
        return self._catalog.copies.replicas_of(chunk)  # imported only when one is needed

    def locate(self, path: str) -> Location:
        """One query. A leading "./" or "/" is dropped if the catalog has no such name. Raises NotFound."""
        try:
            return self._catalog.files.locate(path)
        except NotFound:
            names = list(_names(path))
        for name in names[1:]:
            with suppress(NotFound):
                return self._catalog.files.locate(name)
        raise _absent(names[-1], self._catalog.files.folders_among(names[-1:]))

    def locate_many(self, paths: Sequence[str]) -> dict[str, Location | CafcatError]:
        """The same for many: one query for each thousand of them, and one for what is not there. The values are
        locations, or why there is none: NotFound, InvalidInput for what cannot be in a catalog."""
        found: dict[str, Location | CafcatError] = {}
        for start in range(0, len(paths), LOOKED_UP_PATHS):
            found |= self._locate_some(paths[start : start + LOOKED_UP_PATHS])
        return found

    def _locate_some(self, paths: Sequence[str]) -> dict[str, Location | CafcatError]:
        others = {path: list(_names(path)) for path in paths if path.startswith((".", "/"))}
        possible = set(paths).union(*others.values())
        if not is_text("".join(possible)):
            possible = {name for name in possible if is_text(name)}
        places = self._catalog.files.locate_many(possible)
        found = {path: places.get(path) for path in paths}
        for path, names in others.items():
            found[path] = next((places[name] for name in names if name in places), None)
        missing = {path: others.get(path, [path])[-1] for path, place in found.items() if place is None}
        folders = self._catalog.files.folders_among(possible.intersection(missing.values()))
        return found | {path: _absent(name, folders) for path, name in missing.items()}  # type: ignore[return-value]

    def object_of(self, location: Location) -> str:
        """Absolute path or URL of the archive."""
        return self.store_of(location.store).locate(location.object_key)

    def read(self, location: Location, start: int = 0, end: int | None = None) -> bytes:
        """Bytes `[start, end)` of the file, cut at its end; a negative start counts from the end. All of it is
        checked against its checksum, a part cannot be. Raises Corrupt, InvalidInput if the range begins beyond
        the file, AccessDenied, StoreFailed, Unavailable if the whole store is out of reach."""
        return self.content(ReadRequest.of(location.path, location, start, end))

    def content(self, wanted: ReadRequest) -> bytes:
        """As `read`."""
        location = wanted.location
        if self._places.has_failures:
            return self._tried(wanted, ReplicaAttempts(self._places, location))
        try:
            return self._content(wanted, location.store, location.object_key)
        except FAILURES as error:
            trial = ReplicaAttempts(self._places, location)
            trial.own_failed(error)
            return self._tried(wanted, trial, trial.copies())

    def _content(self, wanted: ReadRequest, store: str, object_key: str) -> bytes:
        _, location, start_byte, end_byte, part = wanted
        data = self.store_of(store).read(object_key, start_byte, end_byte)
        if part is not None:
            return decoded(wanted, data)
        found = crc32c(data)
        if found != location.crc32c and wanted.is_whole:
            check(location, found)
        return data

    def _tried(self, wanted: ReadRequest, trial: ReplicaAttempts, places: Iterable[Replica] | None = None) -> bytes:
        """From the first of the places that can give it; by default, all that there are."""
        for place in trial if places is None else places:
            try:
                data = self._content(wanted, place.store, place.object_key)
            except FAILURES as error:
                trial.failed(place, error)
            else:
                trial.succeeded(place)
                return data
        raise trial.error()

    def stream(self, location: Location, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The same in blocks of at most 1 MiB. A file of at most 8 MiB is checked before its first block comes. Of
        a larger one the last block comes only if the checksum is right: until then the bytes are unproven."""
        return self.blocks(ReadRequest.of(location.path, location, start, end))

    def blocks(self, wanted: ReadRequest, *, can_restart: bool = False) -> Iterator[bytes]:
        """As `stream`. `can_restart`: it is for `save`, so that nothing has to be held back."""
        can_be_checked = wanted.is_whole or wanted.part is not None
        if can_be_checked and wanted.location.size_bytes <= HELD_BYTES and not can_restart:
            return self._held(wanted)
        if wanted.part is not None:
            return self._advised(wanted, self._decoded(wanted))
        blocks = self._unchecked(wanted)
        return self._advised(wanted, checked(wanted.location, blocks)) if wanted.is_whole else blocks

    def _advised(self, wanted: ReadRequest, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """What was handed out cannot be taken back: says what to do."""
        try:
            yield from blocks
        except Damaged as error:
            if self._places.copies(wanted.location):
                error.hint = "a copy may be whole: get it into a file (get -o FILE), or run cafcat repair"
            raise

    def _held(self, wanted: ReadRequest) -> Iterator[bytes]:
        """Nothing is handed out before all of it is proven."""
        trial = ReplicaAttempts(self._places, wanted.location)
        for place in trial:
            try:
                blocks = list(_proven(wanted, self._stream(place, wanted, wanted.start_byte)))
            except FAILURES as error:
                trial.failed(place, error)
            else:
                trial.succeeded(place)
                yield from blocks
                return
        raise trial.error()

    def _unchecked(self, wanted: ReadRequest) -> Iterator[bytes]:
        """Where one place fails, the next goes on."""
        position = wanted.start_byte
        trial = ReplicaAttempts(self._places, wanted.location)
        for place in trial:
            try:
                for block in self._stream(place, wanted, position):
                    position += len(block)
                    yield block
            except FAILURES as error:
                trial.failed(place, error)
            else:
                trial.succeeded(place)
                return
        raise trial.error()

    def _decoded(self, wanted: ReadRequest) -> Iterator[bytes]:
        """Where one place fails, the next begins anew, and what was handed out already is passed over."""
        handed_out = 0
        trial = ReplicaAttempts(self._places, wanted.location)
        for place in trial:
            rest = handed_out
            try:
                for block in decoded_blocks(wanted, self._stream(place, wanted, wanted.start_byte)):
                    new, rest = block[rest:], max(0, rest - len(block))
                    handed_out += len(new)
                    yield new
            except Damaged:
                raise
            except FAILURES as error:
                trial.failed(place, error)
            else:
                trial.succeeded(place)
                return
        raise trial.error()

    def _stream(self, place: Replica, wanted: ReadRequest, start_byte: int) -> Iterator[bytes]:
        return self.store_of(place.store).stream(place.object_key, start_byte, wanted.end_byte)

    def save(
        self, wanted: ReadRequest, blocks: Iterator[bytes], write: Callable[[Iterator[bytes]], object]
    ) -> None:
        """Gives the blocks (of `blocks` with can_restart) to `write`, which leaves nothing behind if they end in an
        error: if they prove to be damaged at their end, it is called again, with those of a copy. Raises what
        `write` does."""
        try:
            write(blocks)
        except Damaged as error:
            self.save_copy(wanted, error, write)

    def save_copy(self, wanted: ReadRequest, found: Damaged, write: Callable[[Iterator[bytes]], object]) -> None:
        """The second half of `save`, after `write` raised Damaged."""
        trial = ReplicaAttempts(self._places, wanted.location)
        trial.own_failed(found)
        for place in trial.copies():
            try:
                write(_proven(wanted, self._copy_blocks(place, wanted)))
            except Corrupt as error:
                trial.failed(place, error)
            else:
                trial.succeeded(place)
                return
        raise trial.error()

    def _copy_blocks(self, place: Replica, wanted: ReadRequest) -> Iterator[bytes]:
        """Whatever goes wrong with the copy is told apart from what goes wrong with writing."""
        try:
            yield from self._stream(place, wanted, wanted.start_byte)
        except FAILURES as error:
            raise Damaged(error.message, path=wanted.location.path) from error

    def directed(self, read: "RangeRead") -> "RangeRead":
        """The read as it is; or, if it is known by now that the object cannot be read, of a copy."""
        place = self._places.instead(read.wanted[0].location)
        return read if place is None else read.of(place)

    def elsewhere(self, read: "RangeRead", error: CafcatError) -> bytes | ReplicaAttempts:
        """The bytes of a read that failed, from a copy; or what is to be said of it. Raises AccessDenied,
        Unavailable if the store is out of reach, where no copy helps."""
        trial = ReplicaAttempts(self._places, read.wanted[0].location)
        trial.own_failed(error)
        for place in trial.copies():
            try:
                data = self.store_of(place.store).read(place.object_key, read.start_byte, read.end_byte)
            except FAILURES as failure:
                trial.failed(place, failure)
            else:
                trial.succeeded(place)
                return data
        if trial.concerns_all:
            raise trial.error()
        return trial


def _proven(wanted: ReadRequest, span: Iterator[bytes]) -> Iterator[bytes]:
    if wanted.part is not None:
        return decoded_blocks(wanted, span)
    return checked(wanted.location, span)


def _names(path: str) -> Iterator[str]:
    """Names that the catalog may have for what was typed: itself, then without a leading "./" or "/"."""
    yield path
    while (name := path.removeprefix("./").lstrip("/")) != path:
        yield name
        path = name


def _absent(name: str, folders: set[str]) -> CafcatError:
    if not is_text(name):
        return InvalidInput("a name that is not valid UTF-8, or has a NUL, cannot be in the catalog", path=name)
    return _is_folder(name) if name in folders else NotFound("the catalog has no such file", path=name)


def _is_folder(name: str) -> NotFound:
    return NotFound("this is a folder of the catalog, not a file", path=name, hint="use ls, find or extract")

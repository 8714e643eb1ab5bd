"""What a format is: bytes to entries and back. No store, no SQL, no settings."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from cafcat.model import ArchiveUnits, Entry, NewFile

__all__ = [
    "NOT_IN_TREE",
    "REFUSED",
    "UNCHECKED_HASH",
    "UNLIMITED",
    "ArchiveFolder",
    "EntryWriter",
    "FinishedArchive",
    "Format",
    "HeadSink",
    "InFolder",
    "ListsBlocks",
    "NullSink",
    "RandomReader",
    "Reader",
    "Remark",
    "Remarks",
    "Repacks",
    "Sink",
    "Spread",
    "Spreads",
    "TellsMore",
    "UnitReader",
    "Writer",
    "ZeroPadded",
]


REFUSED: Final = "refused: "
"""What `decoding` of an entry begins with that its format can list, and cannot tell a catalog how to read; the rest
says why. Opening it raises Unsupported."""
UNCHECKED_HASH: Final = "unchecked_hash"
NOT_IN_TREE: Final = "not_in_tree"
"""Kinds of a Remark."""
UNLIMITED: Final = 1 << 63
"""Bytes: more than any archive has, where nothing else is to bound it."""


class RandomReader(Protocol):
    """All that a format knows of storage: an immutable run of bytes."""

    @property
    def name(self) -> str:
        """For messages: the chunk's uuid, file name or URL."""

    @property
    def size_bytes(self) -> int: ...

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Exactly the bytes of `[start_byte, end_byte)`. Raises Corrupt if the object ends earlier."""


class ArchiveFolder(Protocol):
    """A folder, or a prefix of a bucket, and the files in it. Their names are from the folder on, with slashes."""

    @property
    def name(self) -> str:
        """For messages: its path or URL."""

    def files(self, below: str) -> Iterator[tuple[str, int]]:
        """Names and sizes (bytes) of the files below a folder of it ("index/")."""

    def open(self, name: str) -> RandomReader:
        """One of them. Raises NotFound, InvalidInput for a name that no file there can have."""


@runtime_checkable
class InFolder(RandomReader, Protocol):
    """An archive that may know what lies beside it."""

    def beside(self) -> ArchiveFolder | None:
        """The folder that it is in; None if it does not know."""


class Sink(Protocol):
    """Where a writer puts its bytes, in order. After its first error it refuses everything."""

    def write(self, data: bytes) -> None: ...


@runtime_checkable
class HeadSink(Sink, Protocol):
    """A sink whose first bytes can be written once more."""

    def rewrite_head(self, data: bytes) -> None:
        """Puts these bytes, at most 4 KiB, in place of the first ones. It is called once, after the last write."""


class NullSink:
    """A HeadSink that keeps nothing: a writer on this answers questions about sizes."""

    def write(self, data: bytes) -> None: ...

    def rewrite_head(self, data: bytes) -> None: ...


class FinishedArchive(NamedTuple):
    """Sizes of a finished archive in bytes. The index span is `[index_start_byte, index_end_byte)`; index_crc32c is
    that of all bytes from its start to the end of the archive. data_bytes: the sizes of all entries together; in
    CAF, which has nothing else before its index, with what was given up."""

    size_bytes: int
    index_start_byte: int
    index_end_byte: int
    file_count: int
    data_bytes: int
    index_crc32c: int | None = None


class EntryWriter(Protocol):
    """One file being written in blocks. Exactly one of close and abandon ends it."""

    def write(self, block: bytes) -> None: ...

    def close(self) -> Entry:
        """Ends the file: it becomes an entry of all the bytes written."""

    def abandon(self) -> None:
        """Gives the file up: bytes already written stay in the archive as dead bytes; no entry names them."""


class Writer(Protocol):
    """Writes one archive. Checksums files (CRC-32C) as they pass. One file at a time."""

    @property
    def file_count(self) -> int: ...

    def add(self, path: str, content: bytes, modified_ns: int | None) -> Entry:
        """Appends a whole file."""

    def add_all(self, files: Sequence[NewFile], most_bytes: int) -> Sequence[Entry]:
        """Appends whole files, from the first on, as long as the archive, if it were finalized, has at most so many
        bytes and the format's own limits allow: perhaps none. Raises Refused for one of them, with nothing
        written."""

    def open(self, path: str, modified_ns: int | None) -> EntryWriter:
        """Begins a file that is written in blocks."""

    def size_if_finalized(self, path: str | None = None, size_bytes: int = 0) -> int:
        """Size in bytes of the archive if it were finalized now, or after one more file of that path and size;
        never less than what it will be. O(1)."""

    def has_room(self, path: str, size_bytes: int) -> bool:
        """False if the format's own limits (index size, say) cannot take one more such file."""

    def finalize(self) -> FinishedArchive:
        """Writes index and footer. Nothing can be added afterwards."""


class Reader(Protocol):
    """Reads one archive."""

    def entries(self) -> Iterator[Entry]:
        """The entries in the order of the archive's index, each path once. Memory is bounded.
        Raises Corrupt or Unsupported."""

    @property
    def index_span(self) -> tuple[int, int]:
        """Where the index is, at the end of the archive; empty, at its end, where the index is elsewhere."""

    def open(self, entry: Entry) -> Iterator[bytes]:
        """The content of one of its entries in blocks of at most 1 MiB, checked against all that the archive itself
        says of it (a multihash, SipHash, CRC-32C). Raises Corrupt, at the latest in place of the end."""


@runtime_checkable
class TellsMore(Reader, Protocol):
    """A reader of archives that say more of themselves than their entries."""

    def about(self) -> dict[str, Any]:
        """By name, as JSON has it; `version`: of the format. Raises Corrupt."""


class Remark(NamedTuple):
    """Something about an archive that its user should know, and that is no damage.

    kind: "unchecked_hash", blocks with a hash function that is not checked; "not_in_tree", blocks of no file of the
    tree that the header names. blocks: how many there are.
    """

    kind: str
    blocks: int
    message: str


@runtime_checkable
class Remarks(Reader, Protocol):
    """A reader that finds such things on its way through an archive."""

    def remarks(self) -> Sequence[Remark]:
        """Return the remarks. Complete once all entries were listed; else it goes through the archive. Raises
        Corrupt."""


@runtime_checkable
class ListsBlocks(Reader, Protocol):
    """A reader of archives that are made of blocks with CIDs."""

    def blocks(self) -> Iterator[Entry]:
        """The blocks by their CIDs, each once, also where `entries` gives files. Raises as that does."""


@runtime_checkable
class UnitReader(Reader, Protocol):
    """Reads an archive of logs: what was put in are not its entries."""

    def units(self) -> ArchiveUnits:
        """Its log files, and their times. Raises Corrupt, and Unsupported for what a catalog cannot hold."""


class Format(Protocol):
    """A kind of archive."""

    @property
    def name(self) -> str:
        """As in `chunks.format`: "caf"."""

    @property
    def suffix(self) -> str:
        """Of object keys: ".caf"."""

    @property
    def names_files(self) -> bool:
        """Whether the names in an archive are paths, or say otherwise what is what beyond it. Names that every
        archive of the format has alike do not."""

    @property
    def rewrites_head(self) -> bool:
        """Whether its writer needs a HeadSink: its first bytes are known last."""

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """Whether an archive with these first and last bytes (up to 64 each) may be of this format."""

    def writer(self, sink: Sink) -> Writer: ...

    def reader(self, archive: RandomReader) -> Reader: ...

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """The content of an entry with `decoding` in blocks of at most 1 MiB, from the bytes of its span alone, in
        blocks of any size. Raises Corrupt if they cannot be right, as far as they tell by themselves."""


@runtime_checkable
class ZeroPadded(Format, Protocol):
    """A format whose archives some programs pad with zeros."""

    def zero_padded(self) -> Format:
        """Return the format with readers that take the first zero where content may begin for the end."""


@runtime_checkable
class Spread(Protocol):
    """An archive in several files of one folder, with one list of what is in them.

    names: of the files that hold something, in order; they may be missing.
    """

    @property
    def names(self) -> Sequence[str]: ...

    def reader(self, archive: RandomReader, name: str) -> Reader:
        """Of one of them; its entries are those that it holds. Raises Corrupt."""

    def about(self) -> dict[str, Any]:
        """As TellsMore says it, of all together."""


@runtime_checkable
class Spreads(Format, Protocol):
    """A format with archives that are several files of a folder. `reader` of one of these files finds in the folder
    what it needs, if the archive is InFolder; and raises IndexMissing if that is not there."""

    def spread(self, folder: ArchiveFolder) -> Spread | None:
        """The archive that the folder is; None if it is none of this format, as its content tells. Raises Corrupt,
        Unsupported."""


@runtime_checkable
class Repacks(Format, Protocol):
    """A format whose archives can be put together again from their own parts, and not from files."""

    def repacked(self, archive: RandomReader) -> Iterator[bytes]:
        """The archive again, byte for byte, in blocks. Each part is checked. Raises Corrupt, Unsupported."""

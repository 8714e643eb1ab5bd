"""The protocols of archive formats: how an archive becomes entries, and how entries become an archive.

Formats use no stores, no SQL and no settings. Third parties implement these protocols too: an entry point in the
group `cafcat.formats` names their `Format`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from cafcat.model import ArchiveUnits, Entry, NewFile

__all__ = [
    "NOT_IN_TREE",
    "UNCHECKED_HASH",
    "UNLIMITED",
    "UNSUPPORTED_PREFIX",
    "AllowsZeroPadding",
    "ArchiveFolder",
    "BlockReader",
    "EntryWriter",
    "FinishedArchive",
    "Format",
    "HasProperties",
    "HasRemarks",
    "HeadSink",
    "LocatedArchive",
    "MultiFileArchive",
    "MultiFileFormat",
    "NullSink",
    "RandomReader",
    "Reader",
    "ReassemblableFormat",
    "Remark",
    "Sink",
    "UnitReader",
    "Writer",
]


UNSUPPORTED_PREFIX: Final = "refused: "
"""Prefix of `Entry.decoding` for an entry that its format can list but not read from a catalog. The rest of
`decoding` is the reason. Opening or decoding such an entry raises Unsupported."""
UNCHECKED_HASH: Final = "unchecked_hash"
"""`Remark.kind` for blocks whose hash function cafcat cannot check."""
NOT_IN_TREE: Final = "not_in_tree"
"""`Remark.kind` for blocks that belong to no file of the tree that the header names."""
UNLIMITED: Final = 1 << 63
"""A limit in bytes that no archive reaches."""


class RandomReader(Protocol):
    """The bytes of one archive, readable at any position. Readers of formats have no other access to the archive.

    Bytes that exist never change. A file that another program is still writing may grow.
    """

    @property
    def name(self) -> str:
        """Name of the archive in messages: the chunk's UUID, a file name or a URL."""

    @property
    def size_bytes(self) -> int:
        """Size of the archive in bytes."""

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        """Return exactly the bytes of `[start_byte, end_byte)`.

        Raises:
            Corrupt: the archive ends before `end_byte`. Errors of the store that holds the archive pass through.
        """


class ArchiveFolder(Protocol):
    """A folder, or a prefix of a bucket, whose files a format reads as parts of one archive.

    File names are relative to the folder and use slashes.
    """

    @property
    def name(self) -> str:
        """Path or URL of the folder, for messages."""

    def files(self, below: str) -> Iterator[tuple[str, int]]:
        """Return the name and the size in bytes of each file below the subfolder `below`, such as "index/".

        With "", all files of the folder are returned. The names include `below`. Errors of the store pass through.
        """

    def open(self, name: str) -> RandomReader:
        """Open one file of the folder.

        Raises:
            NotFound: the file is missing.
            InvalidInput: no file in such a folder can have this name. Errors of the store pass through.
        """


@runtime_checkable
class LocatedArchive(RandomReader, Protocol):
    """An archive that can open the folder it is stored in."""

    def parent_folder(self) -> ArchiveFolder | None:
        """Return the folder that contains the archive, or None if it is unknown."""


class Sink(Protocol):
    """Receives the bytes of a new archive from a format's writer, in order.

    After the first error of a sink, the archive has an unknown number of bytes, and the writer writes no more.
    """

    def write(self, data: bytes) -> None:
        """Append these bytes to the archive."""


@runtime_checkable
class HeadSink(Sink, Protocol):
    """A sink that can overwrite the first bytes of its archive once."""

    def rewrite_head(self, data: bytes) -> None:
        """Overwrite the first bytes of the archive with `data` (at most 4 KiB).

        Writers call it at most once, after their last `write`.
        """


class NullSink:
    """A HeadSink that discards all bytes. Used to compute archive sizes and to check that a format can write."""

    def write(self, data: bytes) -> None:
        """Discard the bytes of the archive."""

    def rewrite_head(self, data: bytes) -> None:
        """Discard the new first bytes of the archive."""


class FinishedArchive(NamedTuple):
    """Sizes and positions in a finished archive, as its writer returns them.

    Attributes:
        size_bytes: size of the archive in bytes.
        index_start_byte: start of the index span `[index_start_byte, index_end_byte)`.
        index_end_byte: end of the index span.
        file_count: number of files in the archive.
        data_bytes: total size of the content of all entries in bytes, before compression. In CAF, which has only
            file data before its index, this includes the bytes of abandoned files.
        index_crc32c: CRC-32C of all bytes from `index_start_byte` to the end of the archive, or None if it was not
            computed.
    """

    size_bytes: int
    index_start_byte: int
    index_end_byte: int
    file_count: int
    data_bytes: int
    index_crc32c: int | None = None


class EntryWriter(Protocol):
    """Writes one file of an archive in blocks. The caller ends the file with either `close` or `abandon`."""

    def write(self, block: bytes) -> None:
        """Append a block to the file. Raises the errors of the sink."""

    def close(self) -> Entry:
        """Finish the file and return its entry.

        Raises:
            Refused: the file cannot be stored, or exceeds a limit of the format. The file is then discarded, as by
                `abandon`. Errors of the sink pass through.
        """

    def abandon(self) -> None:
        """Discard the file. Bytes already written stay in the archive as dead bytes that no entry refers to."""


class Writer(Protocol):
    """Writes one archive, one file at a time. Computes the CRC-32C of each file while writing it.

    Methods that write raise the errors of the sink. After such an error all methods raise StoreFailed, and after
    `finalize` they raise InvalidInput.
    """

    @property
    def file_count(self) -> int:
        """Number of files added so far."""

    def add(self, path: str, content: bytes, modified_ns: int | None) -> Entry:
        """Append a whole file and return its entry.

        Args:
            path: name of the entry.
            content: the bytes of the file.
            modified_ns: modification time in nanoseconds since 1970-01-01 UTC, or None if it is unknown.

        Raises:
            Refused: the file cannot be stored, or the archive is full; then no bytes were written.
        """

    def add_all(self, files: Sequence[NewFile], max_bytes: int) -> Sequence[Entry]:
        """Append whole files, from the first on, up to the first one that does not fit.

        Args:
            files: the files, in order.
            max_bytes: largest size in bytes that the archive may have if it is finalized after these files.

        Returns:
            The entries of the files that were added, in the order of `files`. Empty if not even the first file fits
            into `max_bytes` and into the limits of the format.

        Raises:
            Refused: one of the files cannot be stored; then no bytes were written.
        """

    def open(self, path: str, modified_ns: int | None) -> EntryWriter:
        """Begin a file that is written in blocks, and return its writer.

        Args:
            path: name of the entry.
            modified_ns: modification time in nanoseconds since 1970-01-01 UTC, or None if it is unknown.

        Raises:
            Refused: the name cannot be stored, or the archive is full.
            InvalidInput: another file of this archive is still open.
        """

    def size_if_finalized(self, path: str | None = None, size_bytes: int = 0) -> int:
        """Return an upper bound for the size of the archive in bytes if it were finalized now. Takes O(1) time.

        Args:
            path: name of one more file to include in the estimate, or None.
            size_bytes: size of that file in bytes.

        Raises:
            Refused: the name cannot be stored.
        """

    def can_add(self, path: str, size_bytes: int) -> bool:
        """Return False if one more file could exceed a limit of the format, such as the largest size of its index.

        Args:
            path: name of the file.
            size_bytes: size of the file in bytes.

        Raises:
            Refused: the name cannot be stored.
        """

    def finalize(self) -> FinishedArchive:
        """Write the index and the footer, and return the sizes of the archive. No files can be added afterwards.

        Raises:
            InvalidInput: a file is still open, or the archive is finished already.
        """


class Reader(Protocol):
    """Reads the entries of one archive, and their content."""

    def entries(self) -> Iterator[Entry]:
        """Return the entries, each path once: in the order of the index, or in an order of the format.

        Memory is bounded. The contents are not checked. Errors are raised by this call or by the iterator.

        Raises:
            Corrupt: the list of entries is damaged, or the archive is incomplete. Some entries may have been
                yielded before.
            Unsupported: the archive uses a feature that this reader does not have.
            StoreFailed: a temporary file failed.
        """

    @property
    def index_span(self) -> tuple[int, int]:
        """The span `[start, end)` of the index at the end of the archive, in bytes.

        If the index is stored elsewhere, the span is empty and lies at the end of the archive.
        """

    def open(self, entry: Entry) -> Iterator[bytes]:
        """Return the content of one of the archive's entries, in blocks of at most 1 MiB.

        The content is checked against every checksum that the archive stores for it (a multihash, SipHash or
        CRC-32C), except multihashes with a hash function that cafcat does not have.

        Raises:
            Corrupt: the content is damaged. A checksum mismatch is raised after the last block at the latest.
            Unsupported: the format can list this entry, but not read it.
            NotInstalled: a library that the entry's `decoding` needs is not installed.
            StoreFailed: a temporary file failed.
        """


@runtime_checkable
class HasProperties(Reader, Protocol):
    """A reader of archives that have properties of their own, such as the version of their format."""

    def properties(self) -> dict[str, Any]:
        """Return the properties of the archive by name, as JSON values. `version` is the version of the format.

        Raises:
            Corrupt: the archive is damaged.
            Unsupported: a part of the archive that is needed for the properties is too large.
        """


class Remark(NamedTuple):
    """A fact about an archive that its user should know and that is no damage.

    Attributes:
        kind: UNCHECKED_HASH or NOT_IN_TREE.
        blocks: number of blocks that the remark is about.
        message: the fact, as a message for the user.
    """

    kind: str
    blocks: int
    message: str


@runtime_checkable
class HasRemarks(Reader, Protocol):
    """A reader that collects remarks (facts for the user that are no damage) while it reads an archive."""

    def remarks(self) -> Sequence[Remark]:
        """Return the remarks about the archive.

        If the blocks of the archive were not listed before, this call lists them. A remark NOT_IN_TREE is only made
        if all `entries` were listed before. The result is empty if there are no remarks.

        Raises:
            Corrupt: the archive is damaged.
            StoreFailed: a temporary file failed.
        """


@runtime_checkable
class BlockReader(Reader, Protocol):
    """A reader of archives that consist of blocks with CIDs (content identifiers), such as CAR."""

    def blocks(self) -> Iterator[Entry]:
        """Return an entry for each block, each CID once, even if `entries` returns files.

        Raises:
            Corrupt: the archive is damaged.
            Unsupported: the archive uses a feature that this reader does not have.
            StoreFailed: a temporary file failed.
        """


@runtime_checkable
class UnitReader(Reader, Protocol):
    """A reader of log archives, whose entries are not the log files that were compressed into the archive."""

    def units(self) -> ArchiveUnits:
        """Return the log files that were compressed into the archive, and the times of its records.

        There is one range of times for each timestamp key of the archive, not for each log file.

        Raises:
            Corrupt: the archive is damaged.
            Unsupported: the archive has a value that a catalog cannot store.
        """


class Format(Protocol):
    """An archive format: its names, and how its archives are recognized, written and read."""

    @property
    def name(self) -> str:
        """Name of the format in the column `chunks.format` and on the command line, such as "caf"."""

    @property
    def suffix(self) -> str:
        """Suffix of the object keys of chunks in this format, such as ".caf"."""

    @property
    def names_files(self) -> bool:
        """True if entry names identify files outside the archive, as paths do.

        False if every archive of the format uses the same entry names, as clp-s archives do.
        """

    @property
    def rewrites_head(self) -> bool:
        """True if the writer needs a HeadSink, because the first bytes of the archive depend on the later ones."""

    def sniff(self, head: bytes, tail: bytes) -> bool:
        """Return True if an archive with these first and last bytes may have this format.

        Args:
            head: the first bytes of the archive, up to 64.
            tail: the last bytes of the archive, up to 64.
        """

    def writer(self, sink: Sink) -> Writer:
        """Return a writer that writes a new archive to `sink`.

        Raises:
            Unsupported: files cannot be packed into archives of this format, or the writer needs a HeadSink and
                `sink` is none.
            NotInstalled: a library that the writer needs is not installed.
        """

    def reader(self, archive: RandomReader) -> Reader:
        """Return a reader for an archive.

        Raises:
            Corrupt: the archive is damaged, as far as creating the reader shows it.
            Unsupported: the archive uses a feature that the reader does not have.
            NotInstalled: a library that the reader needs is not installed.
        """

    def decode(self, span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
        """Return the content of an entry that has a `decoding`, in blocks of at most 1 MiB.

        Args:
            span: the bytes of the entry's span, in blocks of any size. No other bytes of the archive are read.
            entry: the entry.

        Raises:
            Corrupt: the bytes of the span are damaged, as far as the span alone can show.
            Unsupported: the format does not have this `decoding`, or it begins with UNSUPPORTED_PREFIX.
            NotInstalled: a library that this `decoding` needs is not installed.
            StoreFailed: a temporary file failed. Errors of `span` pass through.
        """


@runtime_checkable
class AllowsZeroPadding(Format, Protocol):
    """A format whose archives some programs pad with zeros at the end."""

    def with_zero_padding(self) -> Format:
        """Return a variant of this format whose readers accept zeros at the end of an archive.

        Such a reader treats a zero byte where the next section (a block with its length) should begin as the end of
        the archive.
        """


@runtime_checkable
class MultiFileArchive(Protocol):
    """An archive that consists of several files in one folder, with one list of all entries."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the files that hold entries, in the order in which they are to be read.

        Some of the files may be missing from the folder.
        """

    def reader(self, archive: RandomReader, name: str) -> Reader:
        """Return a reader for one of the archive's files, which lists and reads the entries stored in this file.

        Args:
            archive: the bytes of the file.
            name: the name of the file in the folder, one of `names`.

        Raises:
            Corrupt: the file is damaged.
            Unsupported: the file uses a feature that cafcat does not have.
        """

    def properties(self) -> dict[str, Any]:
        """Return the properties of the whole archive by name, as JSON values; see `HasProperties.properties`."""


@runtime_checkable
class MultiFileFormat(Format, Protocol):
    """A format whose archives can consist of several files in one folder.

    `reader` also accepts one of these files alone. If the file is a LocatedArchive, `reader` finds the index in its
    folder. `reader` raises IndexMissing if the file needs an index that cannot be found. It can also raise the
    errors of `open_folder`.
    """

    def open_folder(self, folder: ArchiveFolder) -> MultiFileArchive | None:
        """Return the archive that consists of the folder's files, or None if they are no archive of this format.

        Raises:
            Corrupt: the index of the archive is damaged.
            Unsupported: the archive uses a feature that cafcat does not have.
            NotInstalled: a library that reads the index is not installed.
            Conflict: another process changed the index while it was copied.
            StoreFailed: a temporary file failed. Errors of `folder` pass through.
        """


@runtime_checkable
class ReassemblableFormat(Format, Protocol):
    """A format whose archives can be rewritten from their own parts, without their original files."""

    def reassemble(self, archive: RandomReader) -> Iterator[bytes]:
        """Return a copy of the archive, in blocks, made from its own parts. Each part is checked.

        The copy is identical, byte for byte, if the archive has the layout that the format's own program writes.

        Raises:
            Corrupt: a part of the archive is damaged.
            Unsupported: the archive uses a feature that cafcat does not have.
        """

"""The data types that all packages share. The glossary in docs/design.md defines their names.

Spans are half-open, `[start_byte, end_byte)`, in bytes from the start of the chunk. Modification times are
nanoseconds since 1970-01-01 UTC, as the operating system reports them. The catalog stores them in microseconds.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

__all__ = [
    "DEFAULT_GRACE_SECONDS",
    "DEFAULT_MAX_UNUSED",
    "LOOKED_UP_PATHS",
    "MAX_CHUNK_BYTES",
    "MAX_PATH_BYTES",
    "NO_SUCH_FILE",
    "NO_SUCH_PREFIX",
    "NO_UNITS",
    "ArchiveUnits",
    "Chunk",
    "ChunkState",
    "ChunkSummary",
    "Comparison",
    "Entry",
    "FileChange",
    "FileProblem",
    "Finding",
    "FindingKind",
    "Folder",
    "FolderTotal",
    "JournalKind",
    "Location",
    "LogUnit",
    "OnConflict",
    "ProblemKind",
    "RetiredLocation",
    "Run",
    "RunState",
    "RunTotals",
    "ShardState",
    "ShardSummary",
    "SourceFile",
    "Stats",
    "TimeRange",
    "Verdict",
    "VerifyLevel",
]

MAX_CHUNK_BYTES = 32_000_000_000
"""Largest size of a chunk that cafcat writes, in bytes, with its index and footer."""
MAX_PATH_BYTES = 2048
"""Longest path, in bytes of UTF-8. Such a path fits a b-tree page of any PostgreSQL server."""
LOOKED_UP_PATHS = 1000
"""Largest number of paths that one query looks up."""

NO_SUCH_FILE = "the catalog has no such file"
"""Message about a path that the catalog does not have. `reading/lookup.py` and `operations/removing.py` use it."""
NO_SUCH_PREFIX = "the catalog has no such file or folder"
"""Message about a name that is neither a file nor a folder of the catalog."""
DEFAULT_GRACE_SECONDS = 7 * 86_400
"""How long prune keeps a chunk to which no path points, by default, in seconds."""
DEFAULT_MAX_UNUSED = 0.2
"""Repack rewrites chunks with more than this share of dead bytes, by default: 0.2 is 20%."""


class Entry(NamedTuple):
    """One file inside an archive, such as a chunk: its name, and the span of bytes that contains it.

    Attributes:
        path: Name of the file in the archive.
        start_byte: First byte of its span in the archive.
        end_byte: One past the last byte of its span.
        crc32c: CRC-32C of the file's content; None if the archive does not record it.
        modified_ns: Modification time, in nanoseconds since 1970 UTC; None if the archive does not record it.
        content_bytes: Size of the decoded file, in bytes; None if the bytes of the span are the file.
        decoding: How to decode the span into the file, in a syntax that the archive's format defines. None if the
            bytes of the span are the file.
    """

    path: str
    start_byte: int
    end_byte: int
    crc32c: int | None
    modified_ns: int | None
    content_bytes: int | None = None
    decoding: str | None = None

    @property
    def size_bytes(self) -> int:
        """Size of the file, in bytes; of the decoded file, if it has to be decoded."""
        return self.end_byte - self.start_byte if self.content_bytes is None else self.content_bytes


class Location(NamedTuple):
    """The place of a file, as the catalog has it: a span of bytes in a chunk.

    Attributes:
        path: Name of the file in the catalog.
        start_byte: First byte of its span in the chunk.
        end_byte: One past the last byte of its span.
        crc32c: CRC-32C of the file's content.
        modified_ns: Modification time, in nanoseconds since 1970 UTC; None if unknown.
        chunk: UUID of the chunk.
        store: URL of the store that holds the chunk.
        object_key: Key of the chunk's object in that store.
        format: Format of the chunk.
        content_bytes: Size of the decoded file, in bytes; None if the bytes of the span are the file.
        decoding: As in `Entry`: how to decode the span; None if the bytes of the span are the file.
    """

    path: str
    start_byte: int
    end_byte: int
    crc32c: int
    modified_ns: int | None
    chunk: UUID
    store: str
    object_key: str
    format: str = "caf"
    content_bytes: int | None = None
    decoding: str | None = None

    @property
    def size_bytes(self) -> int:
        """Size of the file, in bytes; of the decoded file, if it has to be decoded."""
        return self.end_byte - self.start_byte if self.content_bytes is None else self.content_bytes


class ChunkFiles(NamedTuple):
    """Files of one chunk, as columns: the n-th element of each list belongs to the n-th file.

    Attributes:
        uuid: UUID of the chunk.
        store: URL of the store that holds the chunk.
        object_key: Key of the chunk's object in that store.
        format: Format of the chunk.
        paths: Names of the files in the catalog, in the order of their first bytes.
        start_bytes: First byte of each file in the chunk, ascending.
        end_bytes: One past the last byte of each file.
        checksums: CRC-32C of the content of each file.
    """

    uuid: UUID
    store: str
    object_key: str
    format: str
    paths: list[str]
    start_bytes: list[int]
    end_bytes: list[int]
    checksums: list[int]

    def part(self, first: int, end: int) -> "ChunkFiles":
        """Return the files at the positions `[first, end)`."""
        return ChunkFiles(
            *self[:4],
            self.paths[first:end],
            self.start_bytes[first:end],
            self.end_bytes[first:end],
            self.checksums[first:end],
        )


class RetiredLocation(NamedTuple):
    """A location to which a path no longer points, or never did, because its file was skipped.

    Attributes:
        location: The location.
        retired_at: When the path stopped pointing there, or the file was skipped: ISO 8601, UTC.
        run: ingest_runs.id of the run that retired the location; None if no run did.
        reason: "replaced" by another file; "skipped", because the path kept another file, or had been removed;
            "removed"; or "moved" into another chunk.
        is_kept: Whether the catalog still has the chunk; False after `prune` deleted the chunk, or
            `store rm --lost` gave it up.
    """

    location: Location
    retired_at: str
    run: int | None
    reason: str
    is_kept: bool = True


class Folder(NamedTuple):
    """A folder of the catalog. A listing of one level shows the folder instead of the files below it.

    Attributes:
        path: Path of the folder, with "/" at its end.
    """

    path: str


class ChunkState(StrEnum):
    """State of a chunk: writing -> committed | retired | abandoned; committed <-> retired -> deleted.

    Copies and backups have the same states, except `retired`.
    """

    WRITING = "writing"
    """The chunk is not committed yet: its writer holds a lease and works on the object, or has died."""
    COMMITTED = "committed"
    """The object is durable, and at least one path of the catalog points to the chunk."""
    ABANDONED = "abandoned"
    """The writer gave up or died before the commit. No path points to the chunk, and its object is removed."""
    RETIRED = "retired"
    """The object is durable, but no path points to the chunk. Prune removes the object after a grace period; until
    then, undelete can bring back the files that were removed."""
    DELETED = "deleted"
    """The object may be removed at any time, or has been removed; the object of an adopted archive stays. The row
    stays as history."""


class ChunkSummary(NamedTuple):
    """Sizes and checksums of a finished chunk.

    Attributes:
        size_bytes: Size of the whole object: data, index and footer.
        index_start_byte: First byte of the object's own index; `size_bytes` if it has no index at its end.
        index_end_byte: One past the last byte of that index.
        file_count: Number of files in that index.
        data_bytes: Total size of all files in the object; in a CAF, also of files that its writer abandoned.
        crc64nvme: CRC-64/NVME of the whole object.
        etag: Entity tag that the store gave the object; None if it is unknown, or the store is a folder.
        index_crc32c: CRC-32C of the object from `index_start_byte` to its end; None if it was not computed.
    """

    size_bytes: int
    index_start_byte: int
    index_end_byte: int
    file_count: int
    data_bytes: int
    crc64nvme: int
    etag: str | None = None
    index_crc32c: int | None = None


class Chunk(NamedTuple):
    """A chunk, as its row in the table `chunks` describes it.

    Attributes:
        uuid: Name of the chunk outside SQL.
        state: Its state.
        format: Format of the archive.
        store: URL of the store that holds the object.
        object_key: Key of the object in that store.
        size_bytes: Size of the object; None while it is being written, or if it was abandoned.
        file_count: Number of files in the object's own index.
        live_file_count: Number of files that the catalog locates in the chunk.
        live_bytes: Total size of these files, in bytes.
        crc64nvme: CRC-64/NVME of the object in base64, as S3 reports it; None if unknown.
        run: ingest_runs.id of the run that wrote the chunk; None if no run did.
        begun_at: When the row was inserted: ISO 8601, UTC.
        committed_at: When the chunk was committed: ISO 8601, UTC; None if it was not.
        adopted_prefix: For an archive that was adopted in place, the text before each of the archive's own names in
            the paths of the catalog. None for a chunk that cafcat wrote.
    """

    uuid: UUID
    state: ChunkState
    format: str
    store: str
    object_key: str
    size_bytes: int | None
    file_count: int
    live_file_count: int
    live_bytes: int
    crc64nvme: str | None
    run: int | None
    begun_at: str
    committed_at: str | None
    adopted_prefix: str | None


class JournalKind(StrEnum):
    """The kind of change that a journal record describes."""

    COMMIT = "commit"
    """A chunk was committed: the catalog got all files of its index, except for those that were skipped."""
    MOVE = "move"
    """A chunk was committed into which repack or repair copied files of other chunks."""
    REMOVE = "remove"
    """Files were removed."""
    RESTORE = "restore"
    """Removed files were brought back."""


class VerifyLevel(StrEnum):
    """What `cafcat verify` checks: the rows of the catalog, the objects in the stores, or a source."""

    CATALOG = "catalog"
    """Check with SQL alone that no rows contradict each other."""
    INDEX = "index"
    """Check that each object exists, its size, and its own index against the rows of the catalog."""
    DATA = "data"
    """Check as for INDEX, and read every byte of each object and compare it with the checksums."""
    SOURCE = "source"
    """Read the files of a source again, and compare their sizes and checksums with the catalog."""


class Verdict(StrEnum):
    """The outcome of a check in one word: of a chunk or copy, of the catalog's rows, or of a source's files."""

    OK = "ok"
    """No error was found."""
    DAMAGED = "damaged"
    """Errors were found. The findings list them."""
    MISSING = "missing"
    """The object does not exist."""
    UNREADABLE = "unreadable"
    """The object or the source could not be read, and no damage was found before. It may be undamaged."""


class FindingKind(StrEnum):
    """The part of an object, catalog or source that a finding concerns."""

    FILE = "file"
    """The bytes of a file are wrong, or cannot be read."""
    INDEX = "index"
    """The object's own index or its footer is wrong."""
    GAP = "gap"
    """Bytes of the object that belong to no file are wrong, or cannot be read."""
    SIZE = "size"
    """The object has the wrong size."""
    MISSING = "missing"
    """The object does not exist."""
    MAPPING = "mapping"
    """The object and the catalog's rows differ. The rows are wrong, or it is unknown which of both is."""
    CATALOG = "catalog"
    """Rows of the catalog contradict each other."""
    SOURCE = "source"
    """A file of the catalog differs from the file in its source."""
    ABSENT = "absent"
    """A file of the catalog does not exist in its source any more. That is no damage."""
    UNPACKED = "unpacked"
    """A file of the source is not in the catalog. That is no damage."""
    UNREADABLE = "unreadable"
    """The object, the source, or a file of the source could not be read."""


class Finding(NamedTuple):
    """One error that a check found, or the number of further errors of one kind if there are too many.

    Attributes:
        kind: The part that is wrong.
        detail: The error, in one line.
        path: The file that is concerned, or the first of several; None if no file is.
        start_byte: First byte of the span with the error in the chunk, such as the span of a damaged file. None if
            the finding is not about bytes.
        end_byte: One past the last byte of this span; None if the finding is not about bytes.
        file_count: Number of files that the finding concerns, or all further errors together; 0 if no file is.
        is_live: True if a live file needs the wrong part. False if only replaced or removed files need it, or none.
    """

    kind: FindingKind
    detail: str
    path: str | None = None
    start_byte: int | None = None
    end_byte: int | None = None
    file_count: int = 0
    is_live: bool = True


class LogUnit(NamedTuple):
    """One log file that was compressed into an archive of logs: a range of the archive's records.

    Attributes:
        file_name: Name of the log file in the archive; empty if it has none.
        first_record: Number of its first record in the archive; the records are counted from 0.
        end_record: One past the number of its last record.
        fields: All else that the archive records about the log file: a JSON object, as text.
        source_bytes: Size of the log file when it was packed; None if the archive does not record it.
        modified_ns: Its modification time, in nanoseconds since 1970 UTC; None if the archive does not record it.
    """

    file_name: str
    first_record: int
    end_record: int
    fields: str = "{}"
    source_bytes: int | None = None
    modified_ns: int | None = None


class TimeRange(NamedTuple):
    """The times that the records of an archive of logs span, under one of their timestamp keys.

    Attributes:
        timestamp_key: Key of the records that holds the time.
        begin_ms: Earliest time, in milliseconds since 1970 UTC; None if unknown.
        end_ms: Latest time, inclusive, in milliseconds since 1970 UTC; None if unknown.
    """

    timestamp_key: str
    begin_ms: int | None
    end_ms: int | None


class ArchiveUnits(NamedTuple):
    """The contents of an archive of logs.

    Attributes:
        units: Its log files.
        times: The times that its records span, one range for each timestamp key.
    """

    units: Sequence[LogUnit] = ()
    times: Sequence[TimeRange] = ()


NO_UNITS = ArchiveUnits()
"""The ArchiveUnits of an archive that contains no logs: no log files and no times."""


class FolderTotal(NamedTuple):
    """Number and size of all live files in a folder and in all folders below it.

    Attributes:
        path: The folder, with a slash at its end; "" for the whole catalog.
        depth: Number of slashes in the path.
        files: Number of files.
        size_bytes: Their total size in bytes.
    """

    path: str
    depth: int
    files: int
    size_bytes: int


class FileChange(NamedTuple):
    """A file that changed between two moments.

    Attributes:
        change: "added", "replaced" or "removed".
        path: Path of the file.
        old_bytes: Size before in bytes; None for an added file.
        new_bytes: Size after in bytes; None for a removed file.
        run: Number of the ingest that brought the new content; None if no ingest did.
    """

    change: str
    path: str
    old_bytes: int | None
    new_bytes: int | None
    run: int | None


class RunState(StrEnum):
    """State of an ingest run."""

    RUNNING = "running"
    """The run is under way, or its process died without recording the end."""
    FINISHED = "finished"
    """The run processed its sources to the end. Single files may have failed."""
    INTERRUPTED = "interrupted"
    """The user stopped the run. The files packed until then are committed; after a second Ctrl-C, only those in
    chunks that were committed before."""
    FAILED = "failed"
    """An error ended the run. Chunks that were committed before the error stay."""
    REBUILT = "rebuilt"
    """The row was rebuilt from the journals of stores, which do not have the sources, the counts and the end."""


class ShardState(StrEnum):
    """State of a shard: a part of a source, in an ingest by many workers."""

    WAITING = "waiting"
    """No worker has the shard."""
    RUNNING = "running"
    """A worker has the shard, or had it when it died."""
    FINISHED = "finished"
    """All files of the shard were dealt with. Single files may have failed."""
    CANCELLED = "cancelled"
    """The source was cut anew before the shard was finished."""


class ShardSummary(NamedTuple):
    """A part of a source in an ingest by many workers, as its row in the table `shards` describes it.

    Attributes:
        id: shards.id.
        state: State of the shard.
        source: The source: a URL, or an absolute path.
        after: The shard begins after this position; None for the beginning of the source.
        through: The shard ends with this position; None for the end of the source.
        position: All files up to this position were dealt with; None if none was.
        attempts: How many times a worker took the shard.
        host: Host name of the worker that had it last; None if none had it.
        error: Why the last attempt failed; None if it did not.
        files: Number of files that were handled so far.
        bytes: Total size of these files.
        begun_at: When a worker first took it: ISO 8601, UTC; None if none has.
        finished_at: When it was finished: ISO 8601, UTC; None before.
    """

    id: int
    state: ShardState
    source: str
    after: str | None
    through: str | None
    position: str | None
    attempts: int
    host: str | None
    error: str | None
    files: int
    bytes: int
    begun_at: str | None
    finished_at: str | None


class RunTotals(NamedTuple):
    """Counts of an ingest by many workers.

    Attributes:
        counts: Counts of the finished parts of the shards, by name: seen, unchanged, compared, skipped, failed.
        chunks: Number of committed chunks.
        added: Files with a new path in these chunks.
        replaced: Files in these chunks that replaced others.
        skipped: Files in these chunks whose path kept another location.
        bytes: Total size of the added and replaced files.
    """

    counts: Mapping[str, int]
    chunks: int
    added: int
    replaced: int
    skipped: int
    bytes: int


class Run(NamedTuple):
    """One `cafcat ingest` run, as its row in the table `ingest_runs` describes it.

    If its state is REBUILT, its sources, prefix and counts are lost: they are empty, or 0.

    Attributes:
        id: ingest_runs.id.
        state: State of the run.
        sources: The sources, as the user typed them.
        prefix: The value of --prefix; "" for none.
        started_at: When the run began: ISO 8601, UTC.
        finished_at: When it ended: ISO 8601, UTC; None while its state is RUNNING.
        files_added: Files committed under a path that the catalog did not have.
        files_replaced: Files committed under a path that the catalog had.
        files_removed: Files that were gone at the source, and that `delete` removed from the catalog.
        files_unchanged: Files that are the same in the catalog.
        files_skipped: Files left out for an expected reason (ProblemKind).
        files_failed: Files that failed.
        bytes_added: Total size of the files added and replaced.
        chunks_committed: Number of chunks that the run committed.
        error: Why the run failed; None if its state is not FAILED.
    """

    id: int
    state: RunState
    sources: tuple[str, ...]
    prefix: str
    started_at: str
    finished_at: str | None
    files_added: int
    files_replaced: int
    files_removed: int
    files_unchanged: int
    files_skipped: int
    files_failed: int
    bytes_added: int
    chunks_committed: int
    error: str | None


class Stats(NamedTuple):
    """Totals of a catalog.

    Attributes:
        files: Number of live files.
        bytes: Their total size.
        chunks: Number of chunks in each state; states without chunks are absent.
        chunk_bytes: Total size of the objects of committed chunks.
        dead_bytes: Data bytes of committed chunks that belong to no live file; indexes do not count.
        retired_bytes: Total size of the objects of retired chunks. `prune` frees it.
        retired_locations: Number of former locations of paths, those of skipped files included.
        runs: Number of ingest runs.
        catalog_bytes: Size of the database on its server.
    """

    files: int
    bytes: int
    chunks: dict[str, int]
    chunk_bytes: int
    dead_bytes: int
    retired_bytes: int
    retired_locations: int
    runs: int
    catalog_bytes: int


class OnConflict(StrEnum):
    """How an ingest handles a changed file, and `adopt` handles any file, whose path the catalog already has."""

    REPLACE = "replace"
    """Let the path point to the new file, and retire the old location."""
    SKIP = "skip"
    """Keep the catalog's file."""
    FAIL = "fail"
    """Stop the ingest; the open chunk is not committed. `adopt` only leaves out the archive with the file."""


class Comparison(StrEnum):
    """How an ingest decides whether a file changed since the catalog's file of this path was packed."""

    TIME = "time"
    """Compare size, and entity tag or time. If these are equal, but the catalog's file came from another source,
    compare checksums, too."""
    CHECKSUM = "checksum"
    """Compare size and checksum. Every file of the same size is read."""
    NOTHING = "nothing"
    """Do not compare. Every file counts as changed, also if the catalog has the same file."""


class SourceFile(NamedTuple):
    """A file that a source listed.

    Size and times come from the listing and are hints. Opening the file gives the values that are stored.

    Attributes:
        path: Name of the file in the catalog.
        size_bytes: Size of the file.
        modified_ns: Modification time, in nanoseconds since 1970 UTC.
        locator: Text by which the source finds the file again.
        etag: Entity tag (RFC 9110, 8.8.3) without quotes; None if the source has none. It shows a change more
            reliably than a time.
        changed_ns: Status change time of the file system, in nanoseconds since 1970 UTC; None if there is none.
    """

    path: str
    size_bytes: int
    modified_ns: int
    locator: str
    etag: str | None = None
    changed_ns: int | None = None


class NewFile(NamedTuple):
    """A file that was read and is to be packed.

    Attributes:
        path: Name of the file in the catalog.
        content: All bytes of the file.
        modified_ns: Modification time, in nanoseconds since 1970 UTC; None if the source has none.
        etag: Entity tag of the file at its source; None if the source has none.
    """

    path: str
    content: bytes
    modified_ns: int | None
    etag: str | None = None


class ProblemKind(StrEnum):
    """Why a file was left out. The first five kinds are expected, and count as skipped; the others are failures."""

    SYMLINK = "symlink"
    """The file is a symbolic link, which is not followed."""
    SPECIAL = "special"
    """The entry is no regular file: a device, a socket, or a named pipe."""
    OWN = "own"
    """The folder or object belongs to cafcat itself, such as its home or a store."""
    CONFLICT = "conflict"
    """The catalog has another file of this path, which stays: OnConflict.SKIP, or `undelete` of a folder."""
    PRUNED = "pruned"
    """The chunk of the file was pruned, or its adopted archive is not in the catalog any more."""
    NAME = "name"
    """The name of the file cannot be stored or used."""
    TOO_LARGE = "too_large"
    """The file does not fit into a chunk, or the format cannot store it."""
    CHANGED = "changed"
    """The file changed while it was read, or since it was listed."""
    VANISHED = "vanished"
    """The file was listed, but does not exist any more."""
    UNREADABLE = "unreadable"
    """The file cannot be read."""
    LOOP = "loop"
    """A symbolic link leads back to a folder above it."""
    CORRUPT = "corrupt"
    """The bytes of the file, or of the archive that has it, are damaged."""
    EXISTS = "exists"
    """The target exists already: a file on disk, or a path of the catalog."""
    MISSING = "missing"
    """The catalog has no such file, or no such removed file that `undelete` can bring back."""
    TAKEN = "taken"
    """A removed archive of logs cannot be brought back, because another archive has one of its log files by now."""

    @property
    def is_failure(self) -> bool:
        """True if the kind is a failure; False if it is expected, and the file counts as skipped."""
        return self not in (
            ProblemKind.SYMLINK,
            ProblemKind.SPECIAL,
            ProblemKind.OWN,
            ProblemKind.CONFLICT,
            ProblemKind.PRUNED,
        )


class FileProblem(NamedTuple):
    """A file that was skipped, refused or failed.

    Attributes:
        path: Printable name of the file. Undecodable bytes are escaped.
        kind: Why the file was left out.
        message: The reason, in one line.
    """

    path: str
    kind: ProblemKind
    message: str

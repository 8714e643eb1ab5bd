"""The words that all rooms share. One meaning each; docs/design.md has the table.

Spans are half-open, `[start_byte, end_byte)`, in bytes from the start of the chunk. Times are nanoseconds since
1970-01-01 UTC, as the operating system gives them; the catalog keeps microseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

__all__ = [
    "DEFAULT_GRACE_SECONDS",
    "DEFAULT_MAX_UNUSED",
    "LOOKED_UP_PATHS",
    "MAX_CHUNK_BYTES",
    "MAX_PATH_BYTES",
    "NO_UNITS",
    "ArchiveUnits",
    "Chunk",
    "ChunkState",
    "ChunkSummary",
    "Comparison",
    "Entry",
    "ExtractReport",
    "FileProblem",
    "Finding",
    "FindingKind",
    "Folder",
    "IngestReport",
    "JournalKind",
    "Location",
    "LogUnit",
    "OnConflict",
    "ProblemKind",
    "RetiredLocation",
    "Run",
    "RunState",
    "SourceFile",
    "Stats",
    "TimeRange",
    "Verdict",
    "VerifyLevel",
]

MAX_CHUNK_BYTES = 32_000_000_000
"""No chunk that cafcat writes is larger, index and footer counted."""
MAX_PATH_BYTES = 2048
"""A path is at most this long in UTF-8, so that it fits a b-tree page of any Postgres."""
LOOKED_UP_PATHS = 1000
"""So many paths are looked up by one query."""
DEFAULT_GRACE_SECONDS = 7 * 86_400
"""So long prune leaves a chunk that no path points to."""
DEFAULT_MAX_UNUSED = 0.2
"""Chunks in which a larger share of the data is dead are repacked."""


class Entry(NamedTuple):
    """One file inside a chunk. crc32c and modified_ns are None where the archive does not say.

    The bytes of the span are the file, unless `decoding` is there: then they are what the chunk's format makes the
    file of, `content_bytes` long; decoding: what it has to know for that, in its own words.
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
        """Of the file."""
        return self.end_byte - self.start_byte if self.content_bytes is None else self.content_bytes


class Location(NamedTuple):
    """The catalog's answer: which bytes of which chunk a path is; as Entry says, they may have to be decoded."""

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
        """Of the file."""
        return self.end_byte - self.start_byte if self.content_bytes is None else self.content_bytes


class RetiredLocation(NamedTuple):
    """A location that a path had before. retired_at: ISO 8601 in UTC; run: who retired it."""

    location: Location
    retired_at: str
    run: int | None
    reason: str


class Folder(NamedTuple):
    """A common prefix of paths that ends in "/": what a listing of one level shows in place of its files."""

    path: str


class ChunkState(StrEnum):
    """writing -> committed | abandoned; committed <-> retired -> deleted. No other edge exists."""

    WRITING = "writing"
    """The row is there, the object is not, or not yet known to be whole. Its writer holds a lease."""
    COMMITTED = "committed"
    """The object is durable and every mapping is in the catalog."""
    ABANDONED = "abandoned"
    """Its writer gave up or died before the object was whole. Nothing points to it."""
    RETIRED = "retired"
    """No path points to it any more; the object waits for its grace period. Undelete brings it back."""
    DELETED = "deleted"
    """Its object may be removed at any moment, or is gone already; the row remains as history."""


class ChunkSummary(NamedTuple):
    """What a finished chunk is: sizes in bytes, `crc64nvme` over the whole object, `index_crc32c` from the start of
    its index to its end, `etag` as its store gave it."""

    size_bytes: int
    index_start_byte: int
    index_end_byte: int
    file_count: int
    data_bytes: int
    crc64nvme: int
    etag: str | None = None
    index_crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A row of `chunks`. Times are ISO 8601 in UTC; crc64nvme is base64, as S3 shows it. adopted_prefix:
    of an archive that was adopted in place, what its paths begin with before the names in it; else None."""

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
    """What a journal record says."""

    COMMIT = "commit"
    """A chunk was committed; its files are those of its index, but for those that were skipped."""
    MOVE = "move"
    """The same, of a chunk into which files of other chunks were copied."""
    REMOVE = "remove"
    """Files were removed."""
    RESTORE = "restore"
    """Files that had been removed point to their bytes again."""


class VerifyLevel(StrEnum):
    """How closely a verify looks."""

    CATALOG = "catalog"
    """SQL only: whether rows contradict each other."""
    INDEX = "index"
    """Each object: whether it is there, its size, and its own index against the rows."""
    DATA = "data"
    """The same, and every byte of it."""
    SOURCE = "source"
    """The files of a source against the catalog."""


class Verdict(StrEnum):
    """What a check came to."""

    OK = "ok"
    DAMAGED = "damaged"
    """See its findings."""
    MISSING = "missing"
    """There is no such object."""
    UNREADABLE = "unreadable"
    """The store, or the source, did not give it now: whether it is whole nobody can tell."""


class FindingKind(StrEnum):
    """What a finding is about."""

    FILE = "file"
    """The bytes of a file."""
    INDEX = "index"
    """The object's own index, or its footer."""
    GAP = "gap"
    """Bytes of no file."""
    SIZE = "size"
    """The size of the object."""
    MISSING = "missing"
    """The object."""
    MAPPING = "mapping"
    """The object is right, rows of the catalog are not; or nobody can tell which of both."""
    CATALOG = "catalog"
    """Rows of the catalog contradict each other."""
    SOURCE = "source"
    """A file differs at its source, or is not there any more."""
    UNREADABLE = "unreadable"
    """The object, or the source, did not give its bytes now."""


class Finding(NamedTuple):
    """Something that is wrong.

    Attributes:
        kind: What the finding is about.
        detail: What is wrong, in one line.
        path: The file, or the first of several.
        start_byte: First byte of what is wrong in the chunk, if the finding is about bytes.
        end_byte: One past its last byte.
        file_count: Number of files that the finding concerns.
        is_live: False if no live file needs what is wrong: only replaced or removed files do, or none.
    """

    kind: FindingKind
    detail: str
    path: str | None = None
    start_byte: int | None = None
    end_byte: int | None = None
    file_count: int = 0
    is_live: bool = True


class LogUnit(NamedTuple):
    """Records `[first_record, end_record)` of an archive of logs, counted from 0, that came from one log file.
    fields: what else the archive says of it, as a JSON object. source_bytes, modified_ns: size and time of the log
    file; None if the archive does not say."""

    file_name: str
    first_record: int
    end_record: int
    fields: str = "{}"
    source_bytes: int | None = None
    modified_ns: int | None = None


class TimeRange(NamedTuple):
    """The earliest and the latest time of the records of an archive, in milliseconds since 1970, by one timestamp
    key; None if it does not say."""

    timestamp_key: str
    begin_ms: int | None
    end_ms: int | None


class ArchiveUnits(NamedTuple):
    """What an archive of logs has: log files, and times that their records span."""

    units: Sequence[LogUnit] = ()
    times: Sequence[TimeRange] = ()


NO_UNITS = ArchiveUnits()
"""Of an archive of files."""


class RunState(StrEnum):
    """How an ingest run stands."""

    RUNNING = "running"
    """Under way, or its process died without a word."""
    FINISHED = "finished"
    """Came to its end; single files may have failed."""
    INTERRUPTED = "interrupted"
    """Stopped by the user; what was packed is committed."""
    FAILED = "failed"
    """Ended by an error; chunks committed before it stay."""


@dataclass(frozen=True, slots=True)
class Run:
    """A row of `ingest_runs`."""

    id: int
    state: RunState
    sources: tuple[str, ...]
    started_at: str
    finished_at: str | None
    files_added: int
    files_replaced: int
    files_unchanged: int
    files_skipped: int
    files_failed: int
    bytes_added: int
    chunks_committed: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Totals of a catalog."""

    files: int
    bytes: int
    chunks: dict[str, int]
    chunk_bytes: int
    dead_bytes: int
    retired_locations: int
    runs: int
    catalog_bytes: int


class OnConflict(StrEnum):
    """What happens to a path that the catalog has with another size or time."""

    REPLACE = "replace"
    """The file is written anew; the old location is retired."""
    SKIP = "skip"
    """The catalog's file stays."""
    FAIL = "fail"
    """The run stops; nothing of the open chunk is committed."""


class Comparison(StrEnum):
    """How an ingest finds out whether a file of a path that the catalog has is another than before."""

    TIME = "time"
    """By size and entity tag or time; by checksum, where the catalog's file came from another source."""
    CHECKSUM = "checksum"
    """By size and checksum: every file is read."""
    NOTHING = "nothing"
    """Every file is packed anew."""


class SourceFile(NamedTuple):
    """A file that a source offers. Size and time are hints from listing it: what counts is what opening it says.

    `path` is its name in the catalog, `locator` how the source itself finds it again. `etag` is the entity tag
    (RFC 9110, 8.8.3), without quotes, where the source has one: it decides better than a time what changed.
    `changed_ns`: the status change time of a file system, as modified_ns in nanoseconds since 1970 UTC.
    """

    path: str
    size_bytes: int
    modified_ns: int
    locator: str
    etag: str | None = None
    changed_ns: int | None = None


class NewFile(NamedTuple):
    """A file that was read, to be packed; etag: its entity tag at the source."""

    path: str
    content: bytes
    modified_ns: int | None
    etag: str | None = None


class ProblemKind(StrEnum):
    """Why nothing was done for a file. The first five are expected and only counted; the others are failures."""

    SYMLINK = "symlink"
    SPECIAL = "special"
    OWN = "own"
    CONFLICT = "conflict"
    PRUNED = "pruned"
    NAME = "name"
    TOO_LARGE = "too_large"
    CHANGED = "changed"
    VANISHED = "vanished"
    UNREADABLE = "unreadable"
    LOOP = "loop"
    CORRUPT = "corrupt"
    EXISTS = "exists"
    MISSING = "missing"
    TAKEN = "taken"

    @property
    def is_failure(self) -> bool:
        return self not in (
            ProblemKind.SYMLINK,
            ProblemKind.SPECIAL,
            ProblemKind.OWN,
            ProblemKind.CONFLICT,
            ProblemKind.PRUNED,
        )


class FileProblem(NamedTuple):
    """A file that was skipped, refused or failed. `path` is printable: undecodable bytes are escaped."""

    path: str
    kind: ProblemKind
    message: str


@dataclass(slots=True)
class ExtractReport:
    """What an extract did. `failed` holds the first thousand failures, `files_failed` counts all."""

    files: int = 0
    bytes: int = 0
    files_failed: int = 0
    failed: list[FileProblem] = field(default_factory=list)
    interrupted: bool = False


@dataclass(slots=True)
class IngestReport:
    """What an ingest did, in files, bytes and chunks.

    files_compared: files that were read and compared with the checksum in the catalog; a dry run reads none of
    them, and counts how many it would compare.
    """

    run: int | None = None
    files_seen: int = 0
    files_added: int = 0
    files_replaced: int = 0
    files_unchanged: int = 0
    files_compared: int = 0
    files_skipped: int = 0
    files_failed: int = 0
    bytes_added: int = 0
    chunks_committed: int = 0
    interrupted: bool = False
    dry_run: bool = False

    def as_counts(self) -> dict[str, Any]:
        """The counters, by the names of the columns of `ingest_runs`."""
        names = ("added", "replaced", "unchanged", "skipped", "failed")
        counts = {f"files_{name}": getattr(self, f"files_{name}") for name in names}
        return counts | {"bytes_added": self.bytes_added, "chunks_committed": self.chunks_committed}

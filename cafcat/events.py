"""What operations report while they work: one small class for each kind of event.

Operations pass events to `Progress.emit`. The command line prints them.
"""

from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from cafcat.model import FileProblem, Finding, Verdict

__all__ = [
    "ArchiveAdopted",
    "CatalogsDiffer",
    "ChangeFound",
    "ChunkChosen",
    "ChunkCommitted",
    "ChunkCopied",
    "ChunkMigrated",
    "ChunkPruned",
    "ChunkRecovered",
    "CopyOutcome",
    "CopyRecovered",
    "Event",
    "ObjectChecked",
    "ObjectLeftAlone",
    "RecoverOutcome",
    "SourceChange",
    "Warned",
]


class Warned(NamedTuple):
    """A message that the user should read although the operation goes on."""

    message: str


class SourceChange(StrEnum):
    """Difference between a source and the catalog."""

    ADDED = "added"
    """The catalog does not have the file."""
    REPLACED = "replaced"
    """The file differs from the one in the catalog."""
    GONE = "gone"
    """The catalog has the file, and the source does not have it any more."""
    DOUBTFUL = "doubtful"
    """Only the content can show whether the file differs. A dry run does not read it."""


class ChangeFound(NamedTuple):
    """An ingest found a file that is new, changed or gone. The change is not committed yet.

    Attributes:
        change: How source and catalog differ.
        path: Path of the file in the catalog.
    """

    change: SourceChange
    path: str


class ChunkCommitted(NamedTuple):
    """A new chunk is durable and committed: the catalog has all its files, except for those that were skipped.

    Attributes:
        chunk: Uuid of the chunk.
        file_count: Number of files in the chunk, skipped ones included.
        size_bytes: Size of the object.
        commit_seconds: How long the transaction of the commit took; None if another process committed the chunk.
    """

    chunk: str
    file_count: int
    size_bytes: int
    commit_seconds: float | None = None


class ObjectChecked(NamedTuple):
    """`verify` checked an object, a source or the catalog, or found that a whole store is out of reach.

    The catalog has stored the result by now, unless the check was inconclusive. That a store is out of reach is not
    stored.

    Attributes:
        chunk: Uuid of the chunk; None for the catalog, a source, or a whole store that is out of reach.
        store: URL of the store; None for the catalog and for sources.
        is_copy: True for a copy of a chunk; False for the chunk's own object and for everything else.
        object: Path or URL of the object, name of the source, or URL of the store that is out of reach. None for
            the catalog, and for an object whose store cannot be opened.
        verdict: Result of the check.
        files: Number of files that were checked.
        bytes_read: Number of bytes that were read.
        findings: The first 1,000 errors that were found; empty if there are none. Of further errors, only the
            number is given: in `detail` of one more finding for each kind and value of `is_live`.
        unchecked_blocks: Number of blocks of an adopted CAR whose hash function cafcat does not check.
    """

    chunk: str | None
    store: str | None
    is_copy: bool
    object: str | None
    verdict: Verdict
    files: int
    bytes_read: int
    findings: tuple[Finding, ...]
    unchecked_blocks: int = 0


class RecoverOutcome(StrEnum):
    """Result of `recover` for one chunk or copy."""

    ADOPTED = "adopted"
    """The object is complete: the chunk or copy was committed."""
    ABANDONED = "abandoned"
    """The chunk or copy was given up, because its object is missing, incomplete or damaged, or conflicts with the
    catalog. Its remains are removed after this event."""
    CLEANED = "cleaned"
    """The chunk or copy had been given up or deleted before. Now its remains were removed, too."""


class ChunkRecovered(NamedTuple):
    """`recover` committed, abandoned or cleaned up a chunk whose writer died; or would do so (dry run).

    Operations that write into a store recover such chunks first, and emit this event, too.

    Attributes:
        uuid: Uuid of the chunk.
        store: URL of the store.
        outcome: The action that was taken.
        files: Number of files in the index of an adopted chunk, else 0.
        size_bytes: Size of the object of an adopted chunk, else 0.
        reason: Why the chunk was abandoned; None for other outcomes.
    """

    uuid: UUID
    store: str
    outcome: RecoverOutcome
    files: int = 0
    size_bytes: int = 0
    reason: str | None = None


class CopyRecovered(NamedTuple):
    """`recover` committed, abandoned or cleaned up a copy whose writer died; or would do so (dry run).

    Operations that write into a store recover such copies first, and emit this event, too.

    Attributes:
        copy_of: Uuid of the chunk.
        store: URL of the store with the copy.
        outcome: The action that was taken.
        reason: Why the copy was abandoned; None for other outcomes.
    """

    copy_of: str
    store: str
    outcome: RecoverOutcome
    reason: str | None = None


class ObjectLeftAlone(NamedTuple):
    """`recover` found an object, or an unfinished upload, with the key of a chunk, which the catalog does not have.

    Another catalog may write it. Or this catalog was restored from a backup that is older than the object. Or the
    catalog gave up the object, for example with a lost store that is found again.

    Attributes:
        object: URL of the store, a slash, and the key of the object.
        is_upload: True for an unfinished upload.
        copy_of: Uuid of the chunk of the catalog, if this object has its key; else None.
        is_needed: True if that chunk has live files; False if it is retired or deleted, or there is no such chunk.
    """

    object: str
    is_upload: bool
    copy_of: UUID | None
    is_needed: bool


class ChunkPruned(NamedTuple):
    """`prune` removed the objects of a chunk, or one object that a migration left; or would do so (dry run).

    The objects of a chunk are its own object and its copies. Objects in a store that fails are not removed.

    Attributes:
        uuid: Uuid of the chunk.
        store: URL of the chunk's store; of the store that was left, for an object that a migration left.
        objects: Number of removed objects; 0 for an adopted archive, whose object stays where it is.
        bytes_freed: Total size of the removed objects, in bytes.
        retired_at: When the last file left the chunk, or the chunk was migrated: ISO 8601 in UTC. None if unknown.
    """

    uuid: UUID
    store: str
    objects: int
    bytes_freed: int
    retired_at: str | None


class CopyOutcome(StrEnum):
    """Result of `copy` for one chunk."""

    COPIED = "copied"
    """The bytes of the chunk were written into the store."""
    REPLACED = "replaced"
    """The same, in place of a copy that `verify` had found damaged or missing."""
    FOUND = "found"
    """The store had an object with this key and these bytes: the object counts as a copy from now on."""
    THERE = "there"
    """The store had a copy before: nothing was done."""
    OWN = "own"
    """The store has the chunk itself: nothing was done, and the chunk has no copy there."""


class ChunkCopied(NamedTuple):
    """`copy` copied a chunk into a store, or found that the store has the chunk already.

    Attributes:
        uuid: Uuid of the chunk.
        store: URL of the store that the user chose for the copies.
        outcome: The action that was taken.
        size_bytes: Size of the object.
    """

    uuid: UUID
    store: str
    outcome: CopyOutcome
    size_bytes: int


class ChunkMigrated(NamedTuple):
    """`store migrate` moved a chunk or a copy: the catalog points to the object in the new store from now on.

    Attributes:
        uuid: Uuid of the chunk.
        store: URL of the new store.
        outcome: COPIED if the bytes were written there; FOUND, THERE or OWN if the new store had them already.
        size_bytes: Size of the object.
    """

    uuid: UUID
    store: str
    outcome: CopyOutcome
    size_bytes: int


class ChunkChosen(NamedTuple):
    """`repack` is going to copy the live files of a chunk into new chunks, or would do so.

    Attributes:
        chunk: Uuid of the chunk.
        store: URL of the chunk's store.
        size_bytes: Size of the object.
        data_bytes: Total size of all entries; in a CAF, also of files that its writer abandoned.
        dead_bytes: The part of `data_bytes` that belongs to no live file.
        live_bytes: Total size of the live files, to which a path points.
        live_files: Number of live files.
    """

    chunk: str
    store: str
    size_bytes: int
    data_bytes: int
    dead_bytes: int
    live_bytes: int
    live_files: int


class ArchiveAdopted(NamedTuple):
    """`adopt` entered an archive into the catalog, or would do so.

    Attributes:
        archive: Path or URL of the archive.
        uuid: Uuid of the new chunk. In a dry run, it is random, and the real adoption has another one.
        format: Format of the archive.
        size_bytes: Size of the archive.
        files: Number of files that were entered.
        bytes: Total size of these files.
        skipped: Number of files that were not entered, because the catalog keeps the file that has their path.
        failed: Number of entries that cannot be read, are damaged, or have a name that the catalog cannot store.
        unchecked_blocks: Number of blocks of a CAR whose hash function cafcat does not check.
    """

    archive: str
    uuid: UUID
    format: str
    size_bytes: int
    files: int
    bytes: int
    skipped: int
    failed: int
    unchecked_blocks: int = 0


class CatalogsDiffer(NamedTuple):
    """`compare` found a row that only one catalog has, or that differs between both.

    Attributes:
        table: Name of the table.
        name: First value of the row's key: path of the file, or uuid of the chunk.
        ours: Values by column; None if this catalog does not have the row.
        theirs: Values by column; None if the other catalog does not have the row.
    """

    table: str
    name: str
    ours: dict[str, str | None] | None
    theirs: dict[str, str | None] | None


Event = (
    FileProblem
    | Warned
    | ChunkCommitted
    | ObjectChecked
    | ChunkRecovered
    | CopyRecovered
    | ObjectLeftAlone
    | ChunkPruned
    | ChunkCopied
    | ChunkMigrated
    | ChunkChosen
    | ArchiveAdopted
    | CatalogsDiffer
    | ChangeFound
)
"""All kinds of events that an operation can report."""

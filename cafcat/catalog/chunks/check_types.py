"""Types of the catalog's queries for `cafcat verify`: its runs, the objects to check, the results of checks."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from cafcat.model import ChunkState, Finding, Verdict, VerifyLevel

__all__ = [
    "CheckResult",
    "CheckTarget",
    "DamagedChunk",
    "TargetKey",
    "TargetTotals",
    "VerifyRun",
    "VerifyScope",
    "VerifyTally",
]


class VerifyRun(NamedTuple):
    """One `cafcat verify` run: a row of `verify_runs`.

    Attributes:
        id: verify_runs.id.
        resumed: True if the run was begun by an earlier command.
    """

    id: int
    resumed: bool


class VerifyScope(NamedTuple):
    """The objects that a verify run checks: those that meet all conditions. None stands for no condition.

    Objects that were committed after the run began, and copies that a migration has retired, are never checked.

    Attributes:
        level: Depth of the checks.
        chunks: UUIDs of the chunks; an empty sequence for all.
        prefix: Chunks with a live or retired file that is below this folder or has the folder's name.
        store: URL of the store that holds the objects.
        older_than_seconds: Objects without a successful check of this level, or a deeper one, within this many
            seconds before the run. A check does not count if a failed one followed.
        sample: Random share of the objects to check, from 0 to 1.
    """

    level: VerifyLevel
    chunks: Sequence[UUID] = ()
    prefix: str | None = None
    store: str | None = None
    older_than_seconds: int | None = None
    sample: float | None = None

    def as_scope(self) -> dict[str, Any]:
        """Return the given conditions by name, as the value for `verify_runs.scope`. The level is left out."""
        given = self._asdict() | {"chunks": sorted(map(str, self.chunks)) or None}
        return {name: value for name, value in given.items() if value is not None and name != "level"}


class TargetKey(NamedTuple):
    """The position of an object in the order of checks.

    Attributes:
        chunk_id: chunks.id.
        copy_id: chunk_copies.id; 0 for the chunk itself.
    """

    chunk_id: int
    copy_id: int


class CheckTarget(NamedTuple):
    """An object to check: a chunk itself, or a copy of a chunk.

    Attributes:
        chunk_id: chunks.id.
        copy_id: chunk_copies.id; None for the chunk itself.
        store: URL of the store that holds the object.
        object_key: Key of the object in that store.
        uuid: UUID of the chunk.
        format: Format of the archive.
        size_bytes: Size of the object.
        index_start_byte: First byte of the object's own index.
        index_end_byte: One past the last byte of that index.
        file_count: Number of files in that index.
        crc64nvme: CRC-64/NVME of the object in base64; None if unknown.
        index_crc32c: CRC-32C of the object from `index_start_byte` to its end; None if unknown.
        adopted_prefix: Text before each of the archive's own names in the paths of the catalog, if the archive was
            adopted in place; None if cafcat wrote the chunk.
        state: State of the chunk.
    """

    chunk_id: int
    copy_id: int | None
    store: str
    object_key: str
    uuid: UUID
    format: str
    size_bytes: int
    index_start_byte: int
    index_end_byte: int
    file_count: int
    crc64nvme: str | None
    index_crc32c: int | None
    adopted_prefix: str | None
    state: ChunkState

    @property
    def key(self) -> TargetKey:
        """Position of the object in the order of checks."""
        return TargetKey(self.chunk_id, self.copy_id or 0)


class TargetTotals(NamedTuple):
    """Totals of the objects that have no "ok" in a verify run. A run that was resumed checks damaged objects again.

    Attributes:
        objects: Number of objects.
        files: Number of files in them.
        size_bytes: Total size of the objects.
    """

    objects: int
    files: int
    size_bytes: int


class CheckResult(NamedTuple):
    """The result of the check of one object, of a source, or of the catalog as a whole.

    Attributes:
        verdict: Outcome of the check.
        findings: The errors that the check found.
        files_checked: Number of files whose bytes or rows were checked.
        bytes_read: Bytes read from the store or the source.
        started_at: When the check began.
        is_conclusive: False if a library is missing that the format needs, or if this user may not read the object.
            Such a result is not stored.
        unchecked_blocks: Number of blocks of a CAR whose hash function cafcat cannot check. Not stored.
        absent_files: Number of files of the catalog that their source does not have any more. Not stored.
        unpacked_files: Number of files of the source that are not in the catalog. Not stored.
        unreadable_files: Number of files and folders of the source that could not be read. Not stored.
        equal_files: Number of files of the source that are equal to those in the catalog. Not stored.
    """

    verdict: Verdict
    findings: Sequence[Finding]
    files_checked: int
    bytes_read: int
    started_at: datetime
    is_conclusive: bool = True
    unchecked_blocks: int = 0
    absent_files: int = 0
    unpacked_files: int = 0
    unreadable_files: int = 0
    equal_files: int = 0


class VerifyTally(NamedTuple):
    """Totals of the checks of a verify run, including those before it was resumed.

    If an object was checked several times in the run, only its last check counts.

    Attributes:
        ok: Number of checked objects without errors. A source, or the catalog as a whole, counts as one object.
        damaged: Number of damaged objects with at least one error that concerns a live file.
        missing: Number of missing objects that a live file needs.
        unreadable: Number of objects that could not be read.
        unneeded: Number of damaged or missing objects whose errors concern no live file, or whose chunk was deleted
            since.
        files_checked: Number of files whose bytes or rows were checked.
        bytes_read: Bytes read from stores and sources.
        findings: Number of findings.
    """

    ok: int
    damaged: int
    missing: int
    unreadable: int
    unneeded: int
    files_checked: int
    bytes_read: int
    findings: int


class DamagedChunk(NamedTuple):
    """A chunk with a failed check that no later successful check refutes (see `Verification.damaged`).

    If there are several such checks, the attributes describe the last one.

    Attributes:
        id: chunks.id.
        uuid: Name of the chunk outside SQL.
        level: Level of the failed check.
        verdict: Verdict of the failed check: damaged, missing or unreadable.
        verification_id: verifications.id of the failed check.
    """

    id: int
    uuid: UUID
    level: VerifyLevel
    verdict: Verdict
    verification_id: int

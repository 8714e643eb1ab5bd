"""The report of `recover`."""

from dataclasses import dataclass

__all__ = ["RecoverReport"]


@dataclass(frozen=True, slots=True)
class RecoverReport:
    """What was done, or would be; the first eight in numbers of chunks, uploads and objects.

    uploads_removed, objects_removed: what came late to chunks that were settled before. still_leased: chunks that
    are being written; leases_end_at: when the last of their leases ends, ISO 8601 in UTC. unknown_uploads,
    unknown_objects: what no chunk of this catalog names; left alone. failed: what could not be settled, and why.
    files_adopted: found under their paths now; files_skipped: in adopted chunks, where their paths had newer files,
    or other files that the run was told to keep. bytes_adopted: of the files adopted. A dry run counts all files of
    a chunk as adopted. copies_adopted; copies_removed, backups_removed: of which something was left.
    records_written: of the journal, that a store could not be told when they were made; a thousand at most are
    counted.
    """

    adopted: int
    abandoned: int
    cleaned: int
    uploads_removed: int
    objects_removed: int
    still_leased: int
    unknown_uploads: int
    unknown_objects: int
    leases_end_at: str | None
    failed: tuple[str, ...]
    files_adopted: int
    files_skipped: int
    bytes_adopted: int
    copies_adopted: int
    copies_removed: int
    backups_removed: int
    records_written: int
    interrupted: bool
    dry_run: bool

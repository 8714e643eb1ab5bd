"""The report of `recover`: the totals that the operation returns."""

from dataclasses import dataclass

__all__ = ["RecoverReport"]


@dataclass(frozen=True, slots=True)
class RecoverReport:
    """Totals of one `cafcat recover`. In a dry run: of the changes that would be made.

    Attributes:
        adopted: Number of chunks with a complete object that were committed.
        abandoned: Number of chunks that were abandoned and removed.
        cleaned: Number of chunks that had been abandoned or deleted before and whose objects were removed now.
        uploads_removed: Number of removed uploads that appeared after their chunk, copy or backup was recovered.
        objects_removed: Number of removed objects that appeared after their chunk, copy or backup was abandoned.
        still_leased: Number of chunks that are being written, by writers that may be alive.
        unknown_uploads: Number of uploads with the key of a chunk that this catalog does not have. They stay.
        unknown_objects: Number of objects with the key of a chunk that this catalog does not have. They stay.
        unknown_copies: Number of objects with the key of a chunk that this catalog has in another store, but not
            here. They stay; `copy` enters them.
        unneeded_copies: The same for chunks without live files, which are retired or deleted. They stay, too.
        leases_end_at: When the last lease of the chunks in `still_leased` ends, ISO 8601 in UTC; None without them.
        failed: One message for each chunk, copy or store that could not be recovered.
        files_adopted: Number of files in adopted chunks that their paths point to now. A dry run counts all files.
        files_skipped: Number of files in adopted chunks whose paths keep another file.
        bytes_adopted: Bytes of the adopted files.
        copies_adopted: Number of complete copies that were committed.
        copies_removed: Number of copies whose leftovers were removed.
        backups_removed: Number of backups whose leftovers were removed.
        records_written: Number of journal records that the stores lacked, counted up to a thousand for each store.
        runs_failed: Number of ingests whose process had died, and which are recorded as failed now.
        interrupted: True if the user ended the operation.
        dry_run: True if nothing was changed.
    """

    adopted: int
    abandoned: int
    cleaned: int
    uploads_removed: int
    objects_removed: int
    still_leased: int
    unknown_uploads: int
    unknown_objects: int
    unknown_copies: int
    unneeded_copies: int
    leases_end_at: str | None
    failed: tuple[str, ...]
    files_adopted: int
    files_skipped: int
    bytes_adopted: int
    copies_adopted: int
    copies_removed: int
    backups_removed: int
    records_written: int
    runs_failed: int
    interrupted: bool
    dry_run: bool

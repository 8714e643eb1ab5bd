"""The report of `restore`: the totals that the operation returns."""

from dataclasses import dataclass

__all__ = ["RestoreReport"]


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """Totals of one `cafcat restore`.

    Attributes:
        store: URL of the store with the backup.
        object_key: Key of the backup.
        taken_at: The moment as of which the backup has the catalog, ISO 8601 in UTC.
        journal_id: Sequence number of the last journal record in the backup.
        rows: Number of rows by table.
        newer_records: Number of journal records in the stores that the backup lacks: changes after the backup.
        earlier_records: Number of journal records in the stores that the catalog lacked when the backup was made:
            changes that an earlier restore had lost.
        chunks_pruned: Number of chunks without live files that `prune` removed after the backup.
        compared: URLs of the stores whose journals were searched for such changes.
        newer_unknown: URLs of stores whose journals could not be read.
        moved_from: URL of the store in the backup if the store was moved later: the catalog has it at `store` now.
            None if it was not moved.
        newer_backup_in: URL of the store with the newest backup of this catalog, if the restored one is older. None
            if the user named a backup, or no store that can be reached has a newer one.
    """

    store: str
    object_key: str
    taken_at: str
    journal_id: int
    rows: dict[str, int]
    newer_records: int
    earlier_records: int
    chunks_pruned: int
    compared: tuple[str, ...]
    newer_unknown: tuple[str, ...]
    moved_from: str | None
    newer_backup_in: str | None

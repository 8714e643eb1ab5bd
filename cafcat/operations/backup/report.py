"""The report of `backup`: the store, key and contents of the new backup."""

from dataclasses import dataclass

__all__ = ["BackupReport"]


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The backup that was written.

    Attributes:
        store: URL of the store.
        object_key: Key of the backup.
        size_bytes: Size of the backup.
        journal_id: Sequence number of the last journal record in the backup.
        rows: Number of rows in the backup, by table.
        removed: Keys of older backups that were removed.
    """

    store: str
    object_key: str
    size_bytes: int
    journal_id: int
    rows: dict[str, int]
    removed: tuple[str, ...]

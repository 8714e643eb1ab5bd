"""The report of `backup`."""

from dataclasses import dataclass

__all__ = ["BackupReport"]


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What was written: rows by table; journal_id: the last journal record that is in it. removed: keys of
    older backups that are gone now."""

    store: str
    object_key: str
    size_bytes: int
    journal_id: int
    rows: dict[str, int]
    removed: tuple[str, ...]

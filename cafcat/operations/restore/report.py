"""The report of `restore`."""

from dataclasses import dataclass

__all__ = ["RestoreReport"]


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was restored: rows by table; taken_at: of which moment, ISO 8601 in UTC; journal_id: the last journal
    record that is in it. newer_records: what changed since, as the journals beside the chunks say;
    newer_unknown: stores that could not be asked. moved_from: URL of the store in the backup, if the store moved
    later: the catalog has it at `store` now."""

    store: str
    object_key: str
    taken_at: str
    journal_id: int
    rows: dict[str, int]
    newer_records: int
    newer_unknown: tuple[str, ...]
    moved_from: str | None

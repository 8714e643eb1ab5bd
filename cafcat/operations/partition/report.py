"""The report of `db partition`."""

from dataclasses import dataclass

__all__ = ["PartitionReport"]


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """Result of one `cafcat db partition`.

    Attributes:
        partitions: Number of partitions of the new layout; 0 for a plain table.
        before: Number of partitions before.
        rows: Number of rows that were copied, also by earlier runs; in a dry run, an estimate of all rows.
        table_bytes: Size of the rows on disk before the change.
        total_bytes: Size of the rows and their indexes before the change, which needs this space twice.
        log_bytes: Estimated size of the write-ahead log of the change.
        unfinished: Phase at which an earlier run was interrupted; None if there was none.
        dry_run: True if nothing was changed.
        changed: True if the catalog has the new layout.
    """

    partitions: int
    before: int
    rows: int
    table_bytes: int
    total_bytes: int
    log_bytes: int
    unfinished: str | None
    dry_run: bool
    changed: bool

"""The report of `rm`."""

from dataclasses import dataclass

__all__ = ["RemoveReport"]


@dataclass(frozen=True, slots=True)
class RemoveReport:
    """What was removed, or would be: files, their bytes, and how many chunks have no file left. files_failed: names
    and folders that the catalog does not have. stores_behind: URLs of stores that could not be told yet."""

    files: int
    bytes: int
    files_failed: int
    chunks_retired: int
    stores_behind: tuple[str, ...]
    dry_run: bool

"""The report of `rm`: the totals that the operation returns."""

from dataclasses import dataclass

__all__ = ["RemoveReport"]


@dataclass(frozen=True, slots=True)
class RemoveReport:
    """Totals of one `cafcat rm`. In a dry run: of the files that would be removed.

    Attributes:
        files: Number of files.
        bytes: Bytes of these files.
        files_failed: Number of names and folders that the catalog does not have.
        chunks_retired: Number of chunks that lost their last live file.
        stores_behind: URLs of stores that lack the journal record of this removal. `recover` writes it later.
        dry_run: True if nothing was changed.
    """

    files: int
    bytes: int
    files_failed: int
    chunks_retired: int
    stores_behind: tuple[str, ...]
    dry_run: bool

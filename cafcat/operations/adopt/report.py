"""The report of `adopt`: the totals that the operation returns."""

from dataclasses import dataclass, field

__all__ = ["AdoptReport"]


@dataclass(slots=True)
class AdoptReport:
    """Totals of one `cafcat adopt`. In a dry run: of the archives that would be adopted.

    Attributes:
        run: ingest_runs.id of the run to which the files belong; None if no archive was read, and in a dry run.
        archives: Number of adopted archives. Of an archive in several files, each file counts.
        files: Number of files that were entered.
        files_replaced: Number of those whose path the catalog had before.
        bytes: Bytes of these files.
        skipped: Number of entries that were left out, because the catalog keeps the file that has their path.
        files_failed: Number of entries that were left out, because they cannot be read, are damaged, or have a name
            that the catalog cannot store.
        unchecked_blocks: Number of blocks of CARs whose hash function cafcat does not check.
        failed: One message for each archive, or file of an archive in several files, that was not adopted.
        interrupted: True if the user ended the operation.
        dry_run: True if nothing was changed.
    """

    run: int | None = None
    archives: int = 0
    files: int = 0
    files_replaced: int = 0
    bytes: int = 0
    skipped: int = 0
    files_failed: int = 0
    unchecked_blocks: int = 0
    failed: list[str] = field(default_factory=list)
    interrupted: bool = False
    dry_run: bool = False

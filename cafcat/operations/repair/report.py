"""The report of `repair`: the totals that the operation returns."""

from dataclasses import dataclass, field

__all__ = ["RepairReport"]


@dataclass(slots=True)
class RepairReport:
    """Totals of one `cafcat repair`. A dry run reads all files, but writes no chunks and counts no changed files.

    Attributes:
        chunks: Number of chunks that were tried.
        chunks_mended: Number of these chunks that no path points to now. In a dry run: number of chunks of which no
            file is lost.
        files: Number of their live files when they were read.
        bytes: Bytes of these files.
        files_kept: Number of files whose bytes in the chunk itself are right.
        files_from_copy: Number of files that were read from a copy of the chunk.
        files_from_former: Number of files that were read from a chunk that had them before repack or repair moved
            them, or from a copy of such a chunk.
        files_from_source: Number of files that were read from a source.
        files_lost: Number of files whose right bytes were found nowhere.
        removed_files_damaged: Number of removed files in these chunks that `verify` found damaged. They stay so.
        chunks_written: Number of new chunks.
        bytes_written: Size of the new chunks in bytes.
        files_changed: Number of files that were copied, but replaced or removed meanwhile.
        chunks_left: Number of chunks left as they are, because their format cannot be written here.
        logs_damaged: Number of archives of logs that `verify` found damaged. They are not repaired, and no other
            number counts them.
        rows_wrong: Number of chunks whose rows in the catalog `verify` found missing or wrong. They are not
            repaired, and no other number counts them.
        stores_out_of_reach: Number of stores with chunks, copies or backups that cannot be read, or are not where
            their URLs point. `verify` finds no damage there. 0 if the user named the chunks to repair.
        copies_in: URLs of the stores within reach that have copies of the old or former chunks. The new chunks have
            no copies yet.
        lacking_changes: How many later changes the backup lacked from which the catalog was restored, if files of
            missing chunks are lost: these files may be in newer chunks. Else 0.
        interrupted: True if the user ended the operation.
        dry_run: True if nothing was changed.
    """

    chunks: int = 0
    chunks_mended: int = 0
    files: int = 0
    bytes: int = 0
    files_kept: int = 0
    files_from_copy: int = 0
    files_from_former: int = 0
    files_from_source: int = 0
    files_lost: int = 0
    removed_files_damaged: int = 0
    chunks_written: int = 0
    bytes_written: int = 0
    files_changed: int = 0
    chunks_left: int = 0
    logs_damaged: int = 0
    rows_wrong: int = 0
    stores_out_of_reach: int = 0
    copies_in: list[str] = field(default_factory=list)
    lacking_changes: int = 0
    interrupted: bool = False
    dry_run: bool = True

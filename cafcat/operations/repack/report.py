"""The report of `repack`: the totals that the operation returns."""

from dataclasses import dataclass, field

__all__ = ["RepackReport"]


@dataclass(slots=True)
class RepackReport:
    """Totals of one `cafcat repack`. In a dry run: of the changes that would be made.

    Attributes:
        chunks: Number of chosen chunks.
        taken: Number of chunks left out because another repack or repair is copying their files.
        waiting: Number of chunks left out because they would exceed `max_repack_size`.
        bytes_dead: Bytes of dead entries in the chosen chunks.
        chunks_retired: Number of chosen chunks that no path points to now.
        chunks_written: Number of new chunks.
        bytes_written: Size of the new chunks in bytes.
        files_moved: Number of live files that were moved. A dry run counts all live files.
        bytes_moved: Bytes of these files.
        files_changed: Number of files that were copied, but replaced or removed meanwhile.
        files_damaged: Number of damaged files, and of live files of missing chunks. They stay where they are.
        copies_in: URLs of the stores that have copies of the old chunks. The new chunks have no copies yet.
        failed: One message for each store that could not be used, and for each missing chunk.
        interrupted: True if the user ended the operation.
        dry_run: True if nothing was changed.
    """

    chunks: int = 0
    taken: int = 0
    waiting: int = 0
    bytes_dead: int = 0
    chunks_retired: int = 0
    chunks_written: int = 0
    bytes_written: int = 0
    files_moved: int = 0
    bytes_moved: int = 0
    files_changed: int = 0
    files_damaged: int = 0
    copies_in: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    interrupted: bool = False
    dry_run: bool = True

"""The report of `prune`: the totals that the operation returns."""

from dataclasses import dataclass

__all__ = ["PruneReport"]


@dataclass(frozen=True, slots=True)
class PruneReport:
    """Totals of one `cafcat prune`. In a dry run: of the objects that would be removed.

    Attributes:
        chunks: Number of chunks whose own object was removed.
        objects: Number of removed objects: those of chunks and of copies.
        bytes_freed: Bytes of these objects.
        chunks_waiting: Number of chunks without live files whose grace period is not over.
        bytes_waiting: Bytes of the objects of these chunks.
        let_go: Number of adopted archives that were removed from the catalog; their objects stay.
        failed: One message for each chunk or copy that could not be removed from a store.
        interrupted: True if the user ended the operation.
        dry_run: True if nothing was changed.
        copies_waiting: Number of copies that a migration left, and whose grace period is not over.
        files_lost: Number of removed and replaced files in these chunks, which cannot be brought back any more.
            Files of adopted archives are not counted.
    """

    chunks: int
    objects: int
    bytes_freed: int
    chunks_waiting: int
    bytes_waiting: int
    let_go: int
    failed: tuple[str, ...]
    interrupted: bool
    dry_run: bool
    copies_waiting: int = 0
    files_lost: int = 0

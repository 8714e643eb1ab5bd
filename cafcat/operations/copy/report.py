"""The report of `copy`: the totals that the operation returns."""

from dataclasses import dataclass

__all__ = ["CopyReport"]


@dataclass(frozen=True, slots=True)
class CopyReport:
    """Totals of one `cafcat copy`. In a dry run: of the chunks that would be copied.

    Attributes:
        store: URL of the store with the copies.
        copied: Number of chunks that were copied.
        replaced: Number of chunks that were copied in place of a copy that `verify` had found damaged or missing.
        found: Number of chunks whose bytes the store had already: the catalog did not have this copy, or had it as
            one that a migration left.
        there: Number of chunks that had a copy in this store before.
        own: Number of chunks whose own object is in this store: they get no copy.
        adopted: Number of adopted archives with files of the selection: they get no copy.
        damaged: Number of chunks whose object is damaged or missing.
        bytes_copied: Bytes of the copied and replaced chunks.
        chunks_failed: Number of chunks that were not copied, because they are damaged, or cannot be read.
        failed: One message for each chunk that was not copied, damaged ones included. A store that is out of reach
            has one message for all its chunks.
        interrupted: True if the user ended the operation.
        dry_run: True if nothing was changed.
    """

    store: str
    copied: int
    replaced: int
    found: int
    there: int
    own: int
    adopted: int
    damaged: int
    bytes_copied: int
    chunks_failed: int
    failed: tuple[str, ...]
    interrupted: bool
    dry_run: bool = False

"""The parameters of `Repository.writer`."""

from dataclasses import dataclass

from cafcat.model import OnConflict

__all__ = ["WriteOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How a writer packs the files that a program adds.

    Attributes:
        on_conflict: What to do with a path that the catalog has: replace the file, skip the new file, or fail.
        format: Name of the format of the new chunks.
        target_size: Size in bytes at which a chunk is full; None for the setting `target_size`.
        join_store: Write into a store that has chunks of another catalog.
    """

    on_conflict: OnConflict | str = OnConflict.REPLACE
    format: str = "caf"
    target_size: int | None = None
    join_store: bool = False

"""The report of `rebuild`: the contents of the catalog, and the damage that was found."""

from dataclasses import dataclass
from uuid import UUID

from cafcat.operations.rebuild.damage import Damage

__all__ = ["RebuildReport"]


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """The contents of the rebuilt catalog, and the damage that was found in the stores.

    Attributes:
        written: False if the catalog is still empty, because contents would be lost. Then the numbers of chunks,
            copies, files, bytes, retired files, journal records and lost files are 0.
        catalog: Identity of the catalog: that of the lost catalog, if the stores contain it.
        stores: URLs of the stores.
        chunks: Number of chunks.
        copies: Number of copies of chunks.
        files: Number of files that a path points to.
        bytes: Bytes of these files.
        retired_files: Number of earlier locations of paths.
        journal_records: Number of journal records.
        backups: Number of backups of this catalog in the stores.
        adopted: Uuids of chunks without a journal record that were, or would be, entered into the catalog.
        unclaimed: Uuids of chunks without a record in stores of several catalogs: they can be from any, and were
            left out.
        left_out: Uuids of chunks whose objects are damaged or missing, and that had no live file when that was
            found. Their removed and replaced files cannot be undeleted.
        foreign_objects: Number of objects whose key is not that of a chunk, journal record, backup, marker or
            probe.
        stores_with_copies: URLs of stores that only had copies of chunks, and were not named. The catalog does not
            have these copies.
        files_lost: Number of paths whose files were in lost chunks. Only paths that journal records name are
            counted.
        damages: The first thousand damages.
        damage_count: Number of all damages.
        lost_count: Number of damages by which contents are lost.
    """

    written: bool
    catalog: UUID
    stores: tuple[str, ...]
    chunks: int
    copies: int
    files: int
    bytes: int
    retired_files: int
    journal_records: int
    backups: int
    adopted: tuple[UUID, ...]
    unclaimed: tuple[UUID, ...]
    left_out: tuple[UUID, ...]
    foreign_objects: int
    stores_with_copies: tuple[str, ...]
    files_lost: int
    damages: tuple[Damage, ...]
    damage_count: int
    lost_count: int

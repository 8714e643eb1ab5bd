"""The report of `rebuild`."""

from dataclasses import dataclass
from uuid import UUID

from cafcat.operations.rebuild.damage import Damage

__all__ = ["RebuildReport"]


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What the catalog has now, or would have if written is False: then it is as empty as before.

    catalog: its identity, that of the lost one if the stores tell it. files, bytes: found under their paths.
    retired_files: what paths pointed to before. adopted: chunks
    without a journal record. unclaimed: chunks without one where several catalogs wrote: they were left alone, as
    they may be of any. files_lost: paths that, as the journal says, were in chunks that are lost; that is
    not all of them. foreign_objects: what is no chunk, journal record or backup by its name. damages:
    the first thousand of damage_count; lost_count of these cost something.
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
    foreign_objects: int
    files_lost: int
    damages: tuple[Damage, ...]
    damage_count: int
    lost_count: int

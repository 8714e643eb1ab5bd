"""The arguments and flags of the operation `repair`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from cafcat.errors import InvalidInput
from cafcat.support.parameters import (
    Flag,
    FollowSymlinks,
    JoinStore,
    NewChunkSize,
    UnlessYes,
    UnpackTars,
    folder_flag,
)

__all__ = ["RepairOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """Pack the live files of damaged chunks into new chunks, from any place that still has their right bytes.

    The bytes come from the chunk itself, else from its copies, else from an earlier chunk of a moved file, else
    from the sources. Only bytes with the checksum in the catalog are used. A file without right bytes in these
    places stays where it is and is reported.

    Attributes:
        sources: The sources, named as for `ingest`.
        from_copies: Also read copies of the chunks. Without sources, copies are always read.
        chunks: Only these chunks: uuids, or their first 8 digits or more; without any, the chunks that `verify`
            found damaged.
        prefix: Folder of the catalog that the sources were ingested into (`cafcat ingest --prefix`).
        follow_symlinks: True if the sources were ingested with `--follow-symlinks`.
        unpack_tars: False if the sources were ingested with `--no-unpack`.
        target_size: Size in bytes at which a new chunk is full; None for the setting.
        join_store: Write into a store that has chunks of another catalog.
        dry_run: Read and check all files; change nothing.
    """

    sources: Annotated[
        Sequence[str | os.PathLike[str]],
        Flag("--from-source", "Source to read files from, named as for ingest. Repeatable.", "SRC"),
    ] = ()
    from_copies: Annotated[
        bool, Flag("--from-copy", "Also read copies of the chunks. Without --from-source, they are always read.")
    ] = False
    chunks: Annotated[Sequence[str | UUID], Flag("--chunk", "Repair only this chunk. Repeatable.", "UUID")] = ()
    prefix: Annotated[str, folder_flag("The --prefix that the sources were ingested with.")] = ""
    follow_symlinks: FollowSymlinks = False
    unpack_tars: UnpackTars = True
    target_size: NewChunkSize = None
    join_store: JoinStore = False
    dry_run: UnlessYes = False

    def check(self) -> None:
        """Raise InvalidInput for options of sources without a source."""
        if not self.sources and (self.prefix or self.follow_symlinks or not self.unpack_tars):
            message = "--prefix, --follow-symlinks and --no-unpack are for --from-source only"
            raise InvalidInput(message, hint="leave them out, or add --from-source")

"""The arguments and flags of the operation `repack`."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Annotated
from uuid import UUID

from cafcat.model import DEFAULT_MAX_UNUSED
from cafcat.support.arguments import parse_share
from cafcat.support.parameters import Flag, JoinStore, NewChunkSize, OnlyInStore, SharePassword, UnlessYes
from cafcat.support.quantities import parse_size

__all__ = ["RepackOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepackOptions:
    """Copy the live files of chunks with much dead space into new chunks.

    The old chunks retire; `prune` removes them.

    New chunks go to the store of the old ones; files of adopted archives go to the store of the settings. A damaged
    file stays where it is and is reported; `repair` is for such files.

    Attributes:
        max_unused: Choose chunks with more than this share of dead bytes, from 0 to 1.
        small: Also choose chunks of fewer bytes than this, if their files can share a new chunk with those of other
            chosen chunks; None: do not choose chunks by their size.
        max_repack_size: Copy at most this many live bytes; None for no limit. A chunk that would exceed the limit
            is left out, but smaller chunks after it can be chosen.
        chunks: Choose only these chunks, whatever their dead space is: uuids, or their first 8 digits or more.
            Empty: the other options choose.
        store: Only chunks in this store: a name, a URL or a folder; None for all stores.
        format: Format of the new chunks; chunks of other formats are chosen, too. None: that of the old chunk, or
            CAF if cafcat cannot write that format.
        target_size: Size in bytes at which a new chunk is full; None for the setting.
        join_store: Write into a store that has chunks of another catalog.
        dry_run: Report which chunks would be repacked; change nothing.
        share_password: With an executor: send the URL of the database to the workers even if it has a password.
        executor: Copies the files on the workers of this executor, on any number of hosts. None: this process
            copies them.
    """

    max_unused: Annotated[
        float,
        Flag(
            "--max-unused",
            "Only repack chunks with more than this share of dead space.",
            "SHARE",
            parse_share,
            default=f"{DEFAULT_MAX_UNUSED:.0%}",
        ),
    ] = DEFAULT_MAX_UNUSED
    small: Annotated[
        int | None,
        Flag(
            "--small",
            "Also repack chunks below this size, if a store has several of one format.",
            "SIZE",
            parse_size,
        ),
    ] = None
    max_repack_size: Annotated[
        int | None,
        Flag("--max-repack-size", "Copy at most this amount of data, such as 100GB.", "SIZE", parse_size),
    ] = None
    chunks: Annotated[Sequence[str | UUID], Flag("--chunk", "Repack only this chunk. Repeatable.", "UUID")] = ()
    store: Annotated[str | None, OnlyInStore()] = None
    format: Annotated[
        str | None,
        Flag("--format", "Format of the new chunks. Chunks of other formats are repacked, too.", "FORMAT"),
    ] = None
    target_size: NewChunkSize = None
    join_store: JoinStore = False
    dry_run: UnlessYes = False
    share_password: SharePassword = False
    executor: Executor | None = field(default=None, compare=False)

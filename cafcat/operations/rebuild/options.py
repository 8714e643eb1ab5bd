"""The arguments and flags of the operation `rebuild`."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated

from cafcat.support.arguments import parse_text
from cafcat.support.parameters import Argument, Flag, SharePassword

__all__ = ["RebuildOptions"]


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """Fill an empty catalog from the contents of stores, in one transaction.

    A rebuild reads the journal and the indexes of the chunks, but no file contents. Name all stores of the lost
    catalog: if a chunk is in several of them, its first undamaged object is the chunk, and later ones are copies.
    This catalog takes over the identity of the lost one. Without `accept_loss`, nothing is written if no store has
    an undamaged object of some chunk or journal record, or if two journal records have the same number.

    Attributes:
        stores: Names, URLs or folders; without any, the store of the settings.
        catalog: Uuid of the lost catalog, or its first 8 digits or more, if several catalogs wrote to the stores;
            "unnamed" for a catalog of an early version, which has no identity.
        accept_loss: Write the catalog although chunks or journal records are lost. Paths whose newest version is
            lost may point to an older version.
        share_password: With an executor: send the URL of the database to the workers even if it has a password.
        executor: Read the indexes on the workers of this executor, on any number of hosts. None: this process
            reads them.
    """

    stores: Annotated[Sequence[str], Argument("STORE...", "Stores with the chunks: folders, URLs or names.")] = ()
    _: KW_ONLY
    catalog: Annotated[
        str | None,
        Flag(
            "--catalog",
            "Uuid of the lost catalog, or its first 8 digits, if several catalogs used the stores.",
            "UUID",
            parse_text,
        ),
    ] = None
    accept_loss: Annotated[bool, Flag("--accept-loss", "Rebuild although objects are missing or damaged.")] = False
    share_password: SharePassword = False
    executor: Executor | None = field(default=None, compare=False)

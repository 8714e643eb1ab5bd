"""The arguments and flags of the operation `copy`."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated
from uuid import UUID

from cafcat.support.arguments import parse_text
from cafcat.support.parameters import Argument, DryRun, Flag, JoinStore, SharePassword

__all__ = ["CopyOptions"]


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """Copy chunks, byte for byte, into another store.

    Reads use a copy when the chunk's own object fails, and `repair` takes right bytes from copies. The journal
    records of the chunks are copied, too: a catalog can be rebuilt from the copies alone. Copies that exist are
    left alone. A damaged chunk is reported; the others are copied.

    Attributes:
        chunks: Uuids of chunks, or their first 8 digits or more; without any, all committed chunks except adopted
            archives.
        to: The store for the copies: a name, a URL or a folder.
        prefix: Only chunks with live files below this folder of the catalog, or with this file; None for all
            chunks. It cannot be combined with `chunks`.
        join_store: Write into a store that has chunks of another catalog.
        dry_run: Count the chunks that would be copied; change nothing. No object is read: an object in the store
            under the key of a chunk counts as found.
        share_password: With an executor: send the URL of the database to the workers even if it has a password.
        executor: Copies the chunks on the workers of this executor, on any number of hosts. None: this process
            copies.
    """

    chunks: Annotated[
        Sequence[str | UUID], Argument("CHUNK...", "Uuids of chunks, or their first 8 digits or more.", parse_text)
    ] = ()
    _: KW_ONLY
    to: Annotated[str, Flag("--to", "Store for the copies: a folder, URL or name.", "STORE")]
    join_store: JoinStore = False
    prefix: Annotated[
        str | None, Flag("--prefix", "Copy the chunks with files below this folder.", "FOLDER", parse_text)
    ] = None
    dry_run: DryRun = False
    share_password: SharePassword = False
    executor: Executor | None = field(default=None, compare=False)

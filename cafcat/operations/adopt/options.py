"""The arguments and flags of the operation `adopt`."""

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from cafcat.model import OnConflict
from cafcat.support.parameters import Argument, Flag, InputFormat, ZeroPadding, folder_flag

__all__ = ["AdoptOptions"]


@dataclass(frozen=True, slots=True)
class AdoptOptions:
    """Enter existing archives into the catalog. Their bytes stay where they are, and are never changed or removed.

    Every entry is read once. A folder or prefix that is one archive in several files gives one chunk per file. An
    archive that cannot be adopted, and an entry that cannot be read or stored, is reported; the others are adopted.

    Attributes:
        archives: Paths, file:// URLs, or s3:// URLs of objects or prefixes.
        prefix: Folder of the catalog that is put before the names in the archives.
        on_conflict: What to do with a path that the catalog has: replace its file, skip the new one, or fail, which
            leaves out the whole archive.
        format: Format of all these archives; None to find out from their contents.
        zero_padding: True to treat the first section of size zero as the end of a CAR.
        dry_run: Read and check the archives; change nothing.
    """

    archives: Annotated[
        Sequence[str | os.PathLike[str]],
        Argument("ARCHIVE...", "Archive files, s3://bucket/key, or folders with a bundle."),
    ]
    _: KW_ONLY
    prefix: Annotated[str, folder_flag("Catalog folder to put before the names in the archives.")] = ""
    on_conflict: Annotated[
        OnConflict | str, Flag("--on-conflict", "Action for a path that the catalog already has.")
    ] = OnConflict.FAIL
    format: InputFormat = None
    zero_padding: ZeroPadding = False
    dry_run: Annotated[bool, Flag("--dry-run", "Read the archives, but change nothing.")] = False

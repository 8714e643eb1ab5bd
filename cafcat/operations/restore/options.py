"""Options of `restore`."""

from dataclasses import dataclass
from typing import Annotated

from cafcat.support.arguments import parse_text
from cafcat.support.parameters import Argument, Flag

__all__ = ["RestoreOptions"]


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """Fill an empty catalog from a backup, in one transaction. It is committed only if the backup is undamaged.

    Attributes:
        name: Key of the backup, or the beginning of the key; None for the newest backup.
        source: The store with the backup: a name, a URL or a folder; None for the store of the settings.
    """

    name: Annotated[
        str | None, Argument("NAME", "Of the backup, or its beginning; else the newest.", parse_text)
    ] = None
    source: Annotated[
        str | None, Flag("--from", "Store that has it: folder, URL or name; else that of chunks.", "STORE")
    ] = None

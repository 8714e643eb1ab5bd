"""The arguments and flags of the operation `restore`."""

from dataclasses import dataclass
from typing import Annotated

from cafcat.support.arguments import parse_text
from cafcat.support.parameters import Argument, Flag

__all__ = ["RestoreOptions"]


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """Fill an empty catalog from a backup. Everything is committed in one transaction if the backup is undamaged.

    Attributes:
        name: Key of the backup or the beginning of its key, with or without "backups/"; None for the newest backup.
        source: The store with the backup: a name, a URL or a folder; None for the store of the settings.
    """

    name: Annotated[
        str | None, Argument("NAME", "Name of the backup, or its beginning. Default: the newest.", parse_text)
    ] = None
    source: Annotated[
        str | None,
        Flag(
            "--from", "Store with the backup: a folder, URL or name. Default: the store of the settings.", "STORE"
        ),
    ] = None

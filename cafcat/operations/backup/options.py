"""Options of `backup`."""

from dataclasses import dataclass
from typing import Annotated

from cafcat.errors import InvalidInput
from cafcat.support.parameters import Flag, JoinStore

__all__ = ["BackupOptions"]


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """Write the whole catalog, as it is at one moment, into a store, as one object.

    Attributes:
        to: The store: a name, a URL or a folder; None for the store of the settings.
        keep: Afterwards, remove all but so many of the newest backups in this store; None keeps all.
        join_store: Write into a store that has chunks of another catalog.
    """

    to: Annotated[
        str | None,
        Flag("--to", "Store for the backup: a folder, URL or name. Default: the store of the settings.", "STORE"),
    ] = None
    keep: Annotated[
        int | None, Flag("--keep", "Afterwards, remove all but the N newest backups.", "N", least=1)
    ] = None
    join_store: JoinStore = False

    def check(self) -> None:
        """Raise InvalidInput if no backup would stay."""
        if self.keep is not None and self.keep < 1:
            raise InvalidInput(f"at least one backup has to stay, not {self.keep}")

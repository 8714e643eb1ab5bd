"""The arguments and flags of the operation `backup`."""

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
        keep: Afterwards, remove this catalog's backups in the store, except this number of the newest ones, the new
            one included; None keeps all. Backups of other catalogs stay.
        join_store: Write into a store that has chunks of another catalog.
    """

    to: Annotated[
        str | None,
        Flag("--to", "Store for the backup: a folder, URL or name. Default: the store of the settings.", "STORE"),
    ] = None
    keep: Annotated[
        int | None,
        Flag("--keep", "Afterwards, remove all but the N newest of this catalog's backups there.", "N", least=1),
    ] = None
    join_store: JoinStore = False

    def check(self) -> None:
        """Raise InvalidInput if `keep` is less than 1, because no backup would stay."""
        if self.keep is not None and self.keep < 1:
            raise InvalidInput(f"keep must be at least 1, not {self.keep}: at least one backup has to stay")

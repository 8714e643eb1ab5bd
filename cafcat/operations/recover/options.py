"""Options of `recover`."""

from dataclasses import dataclass
from typing import Annotated

from cafcat.support.parameters import DryRun, OnlyInStore

__all__ = ["RecoverOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """Deal with the leftovers of writers that died: adopt chunks whose object is whole, remove all other leftovers.

    Chunks that are being written are left alone. A store that fails costs only its own chunks, and is reported.

    Attributes:
        store: Only chunks in this store: a name, a URL or a folder; None for all stores of the catalog.
        dry_run: Report what would be done; change nothing.
    """

    store: Annotated[str | None, OnlyInStore()] = None
    dry_run: DryRun = False

"""The arguments and flags of the operation `recover`."""

from dataclasses import dataclass
from typing import Annotated

from cafcat.support.parameters import DryRun, OnlyInStore

__all__ = ["RecoverOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """Deal with the leftovers of writers that died: adopt chunks whose object is whole, remove all other leftovers.

    Chunks that are being written are left alone, unless their objects are complete already: these are adopted. A
    store that fails is reported, and the other stores are recovered.

    Attributes:
        store: Only leftovers in this store: a name, a URL or a folder; None for all stores of the catalog.
        dry_run: Report the actions, and change nothing.
    """

    store: Annotated[str | None, OnlyInStore()] = None
    dry_run: DryRun = False

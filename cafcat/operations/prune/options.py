"""The arguments and flags of the operation `prune`."""

from dataclasses import dataclass
from typing import Annotated

from cafcat.model import DEFAULT_GRACE_SECONDS
from cafcat.support.arguments import parse_grace
from cafcat.support.parameters import Flag, OnlyInStore, UnlessYes

__all__ = ["PruneOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneOptions:
    """Remove chunks, and all their copies, that no path has pointed to for a while.

    Files that were removed from these chunks cannot be undeleted any more. An adopted archive only leaves the
    catalog: its object stays. Copies that a migration left are removed, too, and so are the remains of an
    interrupted prune. If a store fails, the objects there are reported and stay, and the objects in other stores
    are removed.

    Attributes:
        grace_seconds: Seconds that must have passed since a chunk lost its last live file, or a copy was left by a
            migration.
        store: Only chunks in this store, with their copies in all stores, and copies that a migration left in this
            store: a name, a URL or a folder. None for all stores.
        dry_run: Count the chunks and objects that would be removed; change nothing.
    """

    grace_seconds: Annotated[
        int,
        Flag(
            "--grace",
            "Only remove chunks without live files for this long, such as 12h, 7d or 0.",
            "TIME",
            parse_grace,
            default=f"{DEFAULT_GRACE_SECONDS // 86_400}d",
        ),
    ] = DEFAULT_GRACE_SECONDS
    store: Annotated[str | None, OnlyInStore()] = None
    dry_run: UnlessYes = False

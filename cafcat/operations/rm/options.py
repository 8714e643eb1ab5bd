"""The arguments of the operation `rm`."""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

__all__ = ["RmOptions"]


@dataclass(frozen=True, slots=True)
class RmOptions:
    """Remove files from the catalog, all in one transaction. Their bytes stay where they are.

    `undelete` brings the files back until `prune` removes their chunk, which it does only after all files of the
    chunk were removed or replaced. A name that the catalog does not have is reported and counted. Every store with
    chunks that cafcat wrote gets a journal record of the change; a store that cannot be written to now gets the
    record from `recover`.

    Attributes:
        paths: Paths of files, any number of them.
        folders: Folders of the catalog, with everything below them. A name also means the file of this name; "." is
            the whole catalog.
        dry_run: Count the files that would be removed; change nothing.
    """

    paths: Iterable[str] = ()
    _: KW_ONLY
    folders: Sequence[str] = ()
    dry_run: bool = False

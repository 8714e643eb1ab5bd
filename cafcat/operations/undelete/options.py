"""The arguments of the operation `undelete`."""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

__all__ = ["UndeleteOptions"]


@dataclass(frozen=True, slots=True)
class UndeleteOptions:
    """Bring removed files back, as they were at their last removal, all in one transaction.

    A path that has a file again is left alone. A file whose chunk was pruned does not come back, nor does a
    section of a clp-s archive of logs if another archive has a log file of its archive by now. Each file that does
    not come back is reported and counted.

    Attributes:
        paths: Paths of files, any number of them.
        folders: Folders of the catalog: all files that were removed below them are brought back. A name also means
            the file of this name; "." is the whole catalog.
    """

    paths: Iterable[str] = ()
    _: KW_ONLY
    folders: Sequence[str] = ()

"""The warning for an empty catalog beside a store with chunks: the catalog was lost."""

from typing import TYPE_CHECKING

from cafcat.cli.call import Call
from cafcat.errors import CafcatError

if TYPE_CHECKING:
    from cafcat.packed_files import PackedFiles

__all__ = ["warn_if_lost"]


def warn_if_lost(call: Call, repository: "PackedFiles") -> CafcatError | None:
    """Print a warning with the remedies, and return it, if the catalog is empty and its store is not.

    Costs one query. The store is read only if the catalog is empty.
    """
    try:
        lost = repository.lost_catalog()
    except CafcatError:
        return None  # the verb's own error tells more
    if lost is not None:
        call.warn(str(lost))
    return lost

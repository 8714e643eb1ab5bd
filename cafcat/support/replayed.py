"""Names that can be read once, recorded so that they can be iterated again."""

import os
from collections.abc import Iterable, Iterator
from typing import Final

from cafcat.support.spool import Spool, packed

__all__ = ["ReplayedNames"]

_MEMORY_BYTES: Final = 1 << 20


class ReplayedNames:
    """The names of an iterable. The first iteration, which must not be left early, records them for the next ones.

    More than 1 MiB of names are in a temporary file.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Prepare to record the names. This reads none yet."""
        self._names: Iterable[str] | None = names
        self._spool = Spool("names of files", _MEMORY_BYTES)
        self._size_bytes = 0

    def __iter__(self) -> Iterator[str]:
        if self._names is None:
            return (os.fsdecode(record) for record in self._spool.records(0, self._size_bytes))
        names, self._names = self._names, None
        return self._recorded(names)

    def _recorded(self, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            record = packed(os.fsencode(name))
            self._spool.write(record)
            self._size_bytes += len(record)
            yield name

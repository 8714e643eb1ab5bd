"""Log files in archives of logs."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from cafcat.custody.base import Keeper, ignore
from cafcat.errors import InvalidInput

if TYPE_CHECKING:
    from cafcat.catalog.files.log_units import StoredUnit
    from cafcat.logs.searching import LogSearch

__all__ = ["Logs"]


class Logs(Keeper):
    """units, search."""

    def units(self, prefix: str = "") -> "Iterator[StoredUnit]":
        """Log files in archives that are not deleted, below a folder or of that name, in order of name; "" or ".":
        all. Names are those that the archives have for them. Each with its records, and where the archive is."""
        return self._catalog.logs.below(_folder_of_logs(prefix))

    def search(
        self,
        query: str,
        prefix: str = "",
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        ignore_case: bool = False,
        projection: Sequence[str] = (),
        warn: Callable[[str], object] | None = None,
    ) -> "LogSearch":
        """Searches archives of logs by a query of clp-s (KQL): iterate over `records()` of what this returns; its
        `report` says what was searched. Only those archives are opened that, as the catalog says, may have records
        of these times (milliseconds since 1970, inclusive) and of log files below a folder, or of that name.
        projection: only these columns. `warn` is told of archives of which a copy is searched, and of a query that
        no record can match.

        Raises InvalidInput, also for a query that is none; NotInstalled if the program clp-s is not installed."""
        from cafcat.logs.searching import LogSearch, SearchQuery

        if not query.strip() or "\0" in query:
            raise InvalidInput("there is nothing to search for", hint="write a query as level: ERROR")
        if from_ms is not None and to_ms is not None and from_ms > to_ms:
            raise InvalidInput("the time that a search begins with is after the one that it ends with")
        if isinstance(projection, str) or any(not name or "\0" in name for name in projection):
            raise InvalidInput("columns are a list of names")
        asked = SearchQuery(query, _folder_of_logs(prefix), from_ms, to_ms, ignore_case, tuple(projection))
        return LogSearch(self._catalog, self._store_of, asked, warn or ignore)


def _folder_of_logs(prefix: str) -> str:
    """Without slashes at its end; "" for everything. A leading one counts: archives of others have such names."""
    return "" if prefix in (".", "./") else prefix.rstrip("/")

"""Queries of the page of stores."""

from collections.abc import Sequence
from typing import Final

from cafcat.catalog.console.reading import PageQueries, Row

__all__ = ["stores"]

_STORES: Final = """
SELECT s.id, s.url, s.name, s.uuid, s.added_at, s.home_path IS NOT NULL AS moves_with_home, s.checks,
       c.chunks, c.bytes, c.adopted, k.copies, b.backups, b.last_backup
FROM stores AS s
LEFT JOIN (
    SELECT store, count(*) FILTER (WHERE adopted_prefix IS NULL) AS chunks, sum(size_bytes)::bigint AS bytes,
           count(*) FILTER (WHERE adopted_prefix IS NOT NULL) AS adopted
    FROM chunks WHERE state IN ('committed', 'retired') GROUP BY store
) AS c ON c.store = s.url
LEFT JOIN (
    SELECT store, count(*) AS copies FROM chunk_copies WHERE state = 'committed' AND retired_at IS NULL
    GROUP BY store
) AS k ON k.store = s.url
LEFT JOIN (
    SELECT store, count(*) AS backups, max(committed_at) AS last_backup FROM backups WHERE state = 'committed'
    GROUP BY store
) AS b ON b.store = s.url
ORDER BY s.id LIMIT 1000
"""


def stores(queries: PageQueries) -> Sequence[Row]:
    """Return all stores, with the numbers of their objects and the failed checks of their servers."""
    return queries.rows(_STORES)

"""Queries of the page of findings."""

from collections.abc import Sequence
from typing import Final

from cafcat.catalog.chunks.failed_checks import FAILURE_COUNTS
from cafcat.catalog.console.reading import PageQueries, Row

__all__ = ["findings_page"]

_PAGE: Final = """
SELECT f.id, f.kind, f.file_path, f.detail, f.start_byte, f.end_byte, f.file_count, f.is_live, f.is_open,
       v.level, v.verdict, v.finished_at, c.uuid, c.state, k.store AS copy_store,
       k.state = 'committed' AND k.retired_at IS NULL AS copy_is_kept
FROM (SELECT *, {is_open} AS is_open FROM findings
      WHERE id < %(before)s AND {condition} ORDER BY id DESC LIMIT %(limit)s) AS f
JOIN verifications AS v ON v.id = f.verification_id LEFT JOIN chunks AS c ON c.id = v.chunk_id
LEFT JOIN chunk_copies AS k ON k.id = v.copy_id
ORDER BY f.id DESC
"""
_IS_OPEN: Final = f"""is_live AND EXISTS (
    SELECT FROM verifications AS v LEFT JOIN chunks AS c ON c.id = v.chunk_id
    WHERE v.id = verification_id AND v.level <> 'source' AND {FAILURE_COUNTS}
      AND CASE WHEN v.chunk_id IS NULL
          THEN NOT EXISTS (SELECT FROM verifications AS later
                           WHERE later.chunk_id IS NULL AND later.level = v.level AND later.id > v.id
                             AND later.verdict = 'ok')
          ELSE c.state = 'committed' AND c.live_file_count > 0 AND (v.copy_id IS NULL OR EXISTS (
              SELECT FROM chunk_copies AS k
              WHERE k.id = v.copy_id AND k.state = 'committed' AND k.retired_at IS NULL)) END
    OFFSET 0)"""  # noqa: S608


def findings_page(queries: PageQueries, before: int, limit: int, *, only_live: bool = False) -> Sequence[Row]:
    """Return findings with a lower number than `before`, the latest first.

    The column is_open is true for those that `only_live` chooses.

    Args:
        queries: Runs the query.
        before: findings.id of the last finding of the page before.
        limit: Most findings.
        only_live: Only findings about bytes that a live file needs now, and that no later check has refuted.
            Findings about sources are left out.
    """
    statement = _PAGE.format(is_open=_IS_OPEN, condition=_IS_OPEN if only_live else "true")
    return queries.rows(statement, {"before": before, "limit": limit})

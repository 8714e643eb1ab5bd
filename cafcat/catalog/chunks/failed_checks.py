"""The rules by which a failed check of a chunk or copy counts as damage that is known now, and of which files."""

from typing import Final

__all__ = ["CONCERNS_FILE", "FAILURE_COUNTS", "IS_MISSING"]

FAILURE_COUNTS: Final = """v.verdict <> 'ok' AND NOT EXISTS (
      SELECT FROM verifications AS later
      WHERE later.chunk_id = v.chunk_id AND later.copy_id IS NOT DISTINCT FROM v.copy_id AND later.id > v.id
        AND later.verdict = 'ok' AND (later.level IN (v.level, 'data') OR v.verdict = 'missing'))"""
"""Condition on a check `v`: it failed, and no later check of the same level, or of level data, was ok.

In cafcat_ops, the view chunk_health and the function is_broken have the same condition, and so have the queries
damaged and damaged-files.
"""
CONCERNS_FILE: Final = """f.kind IN ('file', 'size', 'missing')
  AND (f.start_byte IS NULL OR {file}.start_byte < f.end_byte AND {file}.end_byte > f.start_byte)"""
"""Condition on a finding `f` of a check: the bytes of a file, the row {file} of a table of locations, are damaged.

The finding can concern many files. Without a span, it concerns the whole object, or stands for all findings beyond
the first thousand. The query damaged-files has the same condition.
"""
IS_MISSING: Final = """(cafcat_ops.is_broken({chunk}, {copy}) AND 'missing' = (
      SELECT v.verdict FROM verifications AS v WHERE v.chunk_id = {chunk} AND v.copy_id IS NOT DISTINCT FROM {copy}
      AND v.verdict IN ('damaged', 'missing') ORDER BY v.id DESC LIMIT 1))"""
"""Condition on an object, by SQL for chunks.id and chunk_copies.id: the last failed check found the object missing.

A missing object has no bytes. A damaged one has most of them.
"""

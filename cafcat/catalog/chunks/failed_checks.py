"""The rule by which a failed check of a chunk or copy counts as damage that is known now."""

from typing import Final

__all__ = ["FAILURE_COUNTS"]

FAILURE_COUNTS: Final = """v.verdict <> 'ok' AND NOT EXISTS (
      SELECT FROM verifications AS later
      WHERE later.chunk_id = v.chunk_id AND later.copy_id IS NOT DISTINCT FROM v.copy_id AND later.id > v.id
        AND later.verdict = 'ok' AND (later.level IN (v.level, 'data') OR v.verdict = 'missing'))"""
"""Condition on a check `v`: it failed, and no later check of the same level, or of level data, was ok.

In cafcat_ops, the view chunk_health and the function is_broken have the same condition, and so have the queries
damaged and damaged-files.
"""

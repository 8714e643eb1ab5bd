"""Findings of one check, as they are found: the first thousand, and how many more there are."""

from collections.abc import Callable
from typing import Final

from cafcat.model import Finding, FindingKind

__all__ = ["MOST_FINDINGS", "Findings"]

MOST_FINDINGS: Final = 1000


class Findings:
    """Memory does not depend on how much is wrong."""

    def __init__(self, most: int = MOST_FINDINGS, *, is_live: bool = True) -> None:
        """Args: is_live: False for an object that no live file needs; then no finding is live."""
        self._most = most
        self._is_live = is_live
        self._found: list[Finding] = []
        self._more: dict[tuple[FindingKind, bool], int] = {}

    def add(
        self,
        kind: FindingKind,
        detail: str,
        path: str | None = None,
        start_byte: int | None = None,
        end_byte: int | None = None,
        *,
        file_count: int | None = None,
        is_live: bool = True,
    ) -> None:
        """Add a finding, as Finding has it; file_count: None for 1 with a path, 0 without one. Beyond the first
        findings, further ones are only counted."""
        is_live = is_live and self._is_live
        if file_count is None:
            file_count = 0 if path is None else 1
        if len(self._found) < self._most:
            self._found.append(Finding(kind, detail, path, start_byte, end_byte, file_count, is_live))
        else:
            self._more[kind, is_live] = self._more.get((kind, is_live), 0) + 1

    def count(self, kind: FindingKind) -> int:
        """How many there are of a kind."""
        more = sum(count for (of, _), count in self._more.items() if of is kind)
        return sum(finding.kind is kind for finding in self._found) + more

    def change(self, kind: FindingKind, into: FindingKind, detail: Callable[[str], str]) -> None:
        """What was found later shows that they are of another kind."""
        self._found = [
            finding._replace(kind=into, detail=detail(finding.detail)) if finding.kind is kind else finding
            for finding in self._found
        ]
        for is_live in (True, False):
            count = self._more.pop((kind, is_live), 0)
            if count:
                self._more[into, is_live] = self._more.get((into, is_live), 0) + count

    def listed(self) -> list[Finding]:
        """All that were kept; for those that were not, a line for each kind."""
        more = [
            Finding(kind, f"and {count:,} more of this kind", is_live=is_live)
            for (kind, is_live), count in self._more.items()
        ]
        return self._found + more

    def __bool__(self) -> bool:
        return bool(self._found)

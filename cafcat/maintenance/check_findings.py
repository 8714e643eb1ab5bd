"""Findings of one check, as they are found: the first thousand, and how many more there are."""

from collections.abc import Callable
from typing import Final

from cafcat.model import Finding, FindingKind

__all__ = ["MOST_FINDINGS", "Findings"]

MOST_FINDINGS: Final = 1000


class Findings:
    """Memory does not depend on how much is wrong."""

    def __init__(self, most: int = MOST_FINDINGS) -> None:
        self._most = most
        self._found: list[Finding] = []
        self._more: dict[FindingKind, int] = {}

    def add(
        self,
        kind: FindingKind,
        detail: str,
        path: str | None = None,
        start_byte: int | None = None,
        end_byte: int | None = None,
    ) -> None:
        """Takes a finding; beyond the first ones it is only counted."""
        if len(self._found) < self._most:
            self._found.append(Finding(kind, detail, path, start_byte, end_byte))
        else:
            self._more[kind] = self._more.get(kind, 0) + 1

    def count(self, kind: FindingKind) -> int:
        """How many there are of a kind."""
        return sum(finding.kind is kind for finding in self._found) + self._more.get(kind, 0)

    def change(self, kind: FindingKind, into: FindingKind, detail: Callable[[str], str]) -> None:
        """What was found later shows that they are of another kind."""
        self._found = [
            finding._replace(kind=into, detail=detail(finding.detail)) if finding.kind is kind else finding
            for finding in self._found
        ]
        if kind in self._more:
            self._more[into] = self._more.get(into, 0) + self._more.pop(kind)

    def listed(self) -> list[Finding]:
        """All that were kept; for those that were not, a line for each kind."""
        more = [Finding(kind, f"and {count:,} more of this kind") for kind, count in self._more.items()]
        return self._found + more

    def __bool__(self) -> bool:
        return bool(self._found)
